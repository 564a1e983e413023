"""Run in an environment with nothing but the wheel: batches without NumPy."""

import importlib.util
import tempfile

import icefield

assert importlib.util.find_spec("numpy") is None
squares = icefield.Map.memory("u64", "i32")
squares.put_many(range(10), [-(i**2) for i in range(10)])
values, found = squares.get_many([3, 30])
assert values.tolist() == [-9, 0] and found.tolist() == [True, False]
values[0] = 1
assert memoryview(values).format == "i"
with tempfile.TemporaryDirectory() as directory:
    names = icefield.Map.open(directory + "/names.ice", "u64", "str")
    names.put_many([1, 2], ["one", "two"])
    column, found = names.get_many([2, 3, 1])
    assert list(column) == ["two", None, "one"]
    index = icefield.JoinIndex.build(directory + "/index.ice", [7, 7, 8])
    positions, rows = index.join([8, 9])
    assert positions.tolist() == [0] and rows.tolist() == [2]
    assert index.join([9])[0].tolist() == []
print("without NumPy: passed")
