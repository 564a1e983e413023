"""A hypothesis state machine: a durable map against `dict`, with a process that is killed between steps.

ICEFIELD_STEPS is the number of steps: few by default, 100,000 in a long run.
"""

import shutil
import tempfile

import icefield
from conftest import TABLES, count
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from writer import Writer

STEPS = count("ICEFIELD_STEPS", 400)
PER_EXAMPLE = min(STEPS, 100)

keys = st.text(st.characters(codec="utf-8"), max_size=3)
values = st.text(max_size=40)


class Machine(RuleBasedStateMachine):
    """Every step changes the map and the dict alike."""

    steps = 0
    kills = 0

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp()
        self.path = self.directory + "/t.ice"
        self.model: dict[str, str] = {}

    @initialize(table=st.sampled_from(TABLES))
    def create(self, table: str) -> None:
        self.map = icefield.Map.open(self.path, "str", "str", table=table)

    @rule(key=keys, value=values)
    def put(self, key: str, value: str) -> None:
        self.map[key] = value
        self.model[key] = value

    @rule(key=keys)
    def pop(self, key: str) -> None:
        assert self.map.pop(key, None) == self.model.pop(key, None)

    @rule(key=keys, value=values)
    def setdefault(self, key: str, value: str) -> None:
        assert self.map.setdefault(key, value) == self.model.setdefault(key, value)

    @rule(key=keys, expected=values | st.none(), new=values)
    def compare_and_set(self, key: str, expected: str | None, new: str) -> None:
        is_equal = self.model.get(key) == expected
        assert self.map.compare_and_set(key, expected, new) == is_equal
        if is_equal:
            self.model[key] = new

    @rule(records=st.lists(st.tuples(keys, values)))
    def put_many(self, records: list[tuple[str, str]]) -> None:
        self.map.put_many([key for key, _ in records], [value for _, value in records])
        self.model.update(records)

    @rule(records=st.lists(st.tuples(keys, values)))
    def insert_many(self, records: list[tuple[str, str]]) -> None:
        mask = self.map.insert_many([key for key, _ in records], [value for _, value in records])
        for (key, value), inserted in zip(records, mask, strict=True):
            assert inserted == (key not in self.model)
            self.model.setdefault(key, value)

    @rule(some=st.lists(keys))
    def remove_many(self, some: list[str]) -> None:
        for key, removed in zip(some, self.map.remove_many(some), strict=True):
            assert removed == (self.model.pop(key, None) is not None)

    @rule(some=st.lists(keys))
    def get_many(self, some: list[str]) -> None:
        assert self.map.get_many(some)[0].to_pylist() == [self.model.get(key) for key in some]

    @rule()
    def clear(self) -> None:
        self.map.clear()
        self.model.clear()

    @rule()
    def reopen(self) -> None:
        self.map.close()
        self.map = icefield.Map.open(self.path)

    @rule(records=st.lists(st.tuples(keys, values), min_size=1, max_size=5))
    def killed_writer(self, records: list[tuple[str, str]]) -> None:
        # A fraction of the steps: each starts a process.
        if Machine.steps % 37:
            return
        self.map.close()
        with Writer(self.path) as writer:
            for key, value in records:
                writer.put(key, value)
                self.model[key] = value
        Machine.kills += 1
        self.map = icefield.Map.open(self.path)

    @invariant()
    def same(self) -> None:
        Machine.steps += 1
        if hasattr(self, "map"):
            assert len(self.map) == len(self.model)
            if Machine.steps % 10 == 0:
                assert dict(self.map) == self.model

    def teardown(self) -> None:
        if hasattr(self, "map"):
            assert self.map == self.model
            assert self.map.check() == []
            self.map.close()
        shutil.rmtree(self.directory)


def test_machine() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=max(STEPS // PER_EXAMPLE, 1),
            stateful_step_count=PER_EXAMPLE,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(f"{Machine.steps} steps, {Machine.kills} killed writers")
