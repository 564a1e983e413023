"""DataFusion for Python returns the same rows with and without indexes. See ../README.md."""

import datetime
import pathlib
import subprocess
import sys
import tempfile
import unittest

import pyarrow
import pyarrow.compute
import pyarrow.parquet
from datafusion import SessionContext, col, udf
from icefield_sql import Indexes

WORKSPACE = pathlib.Path(__file__).resolve().parent.parent.parent
QUERIES = [
    "SELECT count(*), sum(price), max(customer) FROM items JOIN orders ON item_order = id",
    "SELECT id, price, item FROM orders JOIN items ON id = item_order WHERE price % 7 = 3 AND amount > 20",
    "SELECT id, item FROM orders LEFT JOIN items ON id = item_order AND amount > price % 40",
    "SELECT item, price, day FROM orders RIGHT JOIN items ON id = item_order",
    "SELECT item, item_order, id FROM orders FULL JOIN items ON id = item_order",
    "SELECT id, price FROM orders WHERE id IN (SELECT item_order FROM items WHERE amount < 5)",
    "SELECT id FROM orders WHERE NOT EXISTS (SELECT 1 FROM items WHERE item_order = id)",
    "SELECT item FROM items WHERE NOT EXISTS (SELECT 1 FROM orders WHERE item_order = id)",
    "SELECT a.item, b.item FROM items a JOIN orders ON a.item_order = id JOIN items b ON b.item_order = id",
]


def program():
    """Returns the program that builds indexes, the last one that was built."""
    built = [WORKSPACE / "target" / profile / "icefield-sql" for profile in ("release", "debug")]
    return max((path for path in built if path.exists()), key=lambda path: path.stat().st_mtime)


class IndexesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.place.cleanup)
        cls.root = pathlib.Path(cls.place.name)
        ids = range(0, 20000, 2)
        day = datetime.date(2026, 1, 1)
        orders = {
            "id": pyarrow.array(ids, pyarrow.int64()),
            "price": [key * 31 % 1009 for key in ids],
            "customer": [f"customer number {key % 50}" for key in ids],
            "day": [day + datetime.timedelta(days=key % 365) for key in ids],
        }
        items = {
            "item": pyarrow.array(range(30000), pyarrow.int32()),
            "item_order": [None if item % 11 == 0 else item * 3 % 25000 for item in range(30000)],
            "amount": [item * 7 % 50 for item in range(30000)],
        }
        for name, columns in (("orders", orders), ("items", items)):
            pyarrow.parquet.write_table(pyarrow.table(columns), cls.root / f"{name}.parquet")
        cls.build("orders.ice")
        cls.build("parts.ice", "--partitions", "3")

    @classmethod
    def build(cls, name, *options):
        command = [program(), "build-index", "orders.parquet", "--on", "id", "--include", "*"]
        subprocess.run([*command, "--index", name, *options], cwd=cls.root, check=True, stdout=subprocess.DEVNULL)

    def session(self, *extensions):
        context = SessionContext().with_extensions(*extensions)
        for name in ("orders", "items"):
            context.register_parquet(name, str(self.root / f"{name}.parquet"))
        return context

    def rows(self, frame):
        """Returns the rows of an answer, in a fixed order."""
        rows = [tuple(row.values()) for row in frame.to_arrow_table().to_pylist()]
        return sorted(rows, key=lambda row: [(value is not None, str(value)) for value in row])

    def test_the_same_rows(self):
        plain = self.session()
        for name in ("orders.ice", "parts.ice"):
            indexes = Indexes(str(self.root / name))
            context = self.session(indexes)
            for sql in QUERIES:
                with self.subTest(sql, index=name):
                    self.assertEqual(self.rows(context.sql(sql)), self.rows(plain.sql(sql)))
                    self.assertTrue(any(f"index {name[:-4]}" in line for line in indexes.decisions()))
                    self.assertIn("IndexJoinExec", str(context.sql(f"EXPLAIN {sql}").to_pydict()))
                    indexes.decisions()

    def test_frames_and_functions(self):
        twice = udf(lambda column: pyarrow.compute.multiply(column, 2), [pyarrow.int64()], pyarrow.int64(), "stable")
        answers = []
        for extensions in ([], [Indexes(str(self.root / "orders.ice"))]):
            context = self.session(*extensions)
            frame = context.table("items").join(context.table("orders"), left_on="item_order", right_on="id")
            frame = frame.filter(col("amount") > 40).select(col("item"), twice(col("price")).alias("twice"))
            self.assertEqual("IndexJoinExec" in str(frame.execution_plan()), bool(extensions))
            few = context.from_pydict({"key": [2, 4, 4, None, 77777]}, name="few")
            in_memory = context.sql("SELECT key, price FROM few LEFT JOIN orders ON key = id")
            alone = context.sql("SELECT count(*) FROM items WHERE amount > 20")
            answers.append([self.rows(frame), self.rows(in_memory), self.rows(alone), self.rows(few)])
        self.assertEqual(answers[0], answers[1])
        self.assertGreater(len(answers[0][0]), 1000)

    def test_tables_are_written(self):
        """The package knows what its tables need of the rows that are inserted."""
        for select in ("SELECT id AS a FROM orders JOIN items ON item_order = id", "SELECT id AS a FROM orders WHERE id IN (SELECT item_order FROM items)"):
            counts = []
            for extensions in ([], [Indexes(str(self.root / "parts.ice"))]):
                context = self.session(*extensions)
                context.sql("CREATE TABLE t (a BIGINT)").collect()
                context.sql(f"INSERT INTO t {select}").collect()
                context.sql(select).write_table("t")
                counts.append(context.table("t").count())
            self.assertEqual(counts[0], counts[1])
            self.assertGreater(counts[0], 1000)

    def test_subqueries(self):
        sql = "SELECT count(*) AS n FROM items JOIN orders ON item_order = id WHERE price > (SELECT avg(price) FROM orders)"
        context = self.session(Indexes(str(self.root / "orders.ice")))
        self.assertEqual(context.sql(sql).to_pydict(), self.session().sql(sql).to_pydict())

    def test_a_replaced_index(self):
        """A session continues to use the index that it has opened."""
        self.build("replaced.ice")
        indexes = Indexes(str(self.root / "replaced.ice"))
        context = self.session(indexes)
        self.build("replaced.ice", "--replace", "--partitions", "2")
        for session in (context, self.session(indexes)):
            self.assertEqual(self.rows(session.sql(QUERIES[0])), self.rows(self.session().sql(QUERIES[0])))
            self.assertTrue(any("index replaced" in line for line in indexes.decisions()))

    def test_explain(self):
        context = self.session(Indexes(str(self.root / "orders.ice")))
        explained = context.sql(f"EXPLAIN {QUERIES[0]}").to_pydict()
        self.assertEqual(explained["plan_type"], ["logical_plan", "physical_plan"])

    def test_errors_of_queries(self):
        context = self.session(Indexes(str(self.root / "orders.ice")))
        for sql in ("SELECT no_such_column FROM orders", "SELECT 1 / (id - id) FROM orders JOIN items ON id = item_order"):
            with self.assertRaisesRegex(Exception, "no_such_column|[Dd]ivide by zero"):
                context.sql(sql).to_pydict()

    def test_bad_indexes(self):
        with self.assertRaisesRegex(RuntimeError, "missing.ice"):
            Indexes(str(self.root / "missing.ice"))
        with self.assertRaises(TypeError):
            Indexes(7)
        changed = self.root / "changed.parquet"
        changed.write_bytes((self.root / "orders.parquet").read_bytes())
        command = [program(), "build-index", changed, "--on", "id"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with changed.open("ab") as file:
            file.write(b"more")
        with self.assertRaisesRegex(RuntimeError, "changed.parquet: has changed"):
            Indexes(str(self.root / "changed.ice"))
        self.assertIn("changed.ice", repr(Indexes(str(self.root / "changed.ice"), allow_stale=True)))


if __name__ == "__main__":
    sys.exit(unittest.main())
