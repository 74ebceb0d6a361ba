"""Writes that look before they decide, against a dict that decides row by row."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, cast

import lance
import pyarrow as pa
import pytest

import weir
from weir.base.newest import SeenVersion
from weir.base.table import BaseTable
from weir.errors import FilterError, InputError, KeyValueError, SchemaError
from weir.write.columns import FollowedColumns, TableColumns
from weir.write.decision.row_expression import RowExpression
from weir.write.table_writer import TableWriter
from weir.write.write_result import WriteResult

Row = dict[str, Any]
Key = tuple[Any, ...]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        ("version", pa.int64()),
        ("name", pa.string()),
        ("tags", pa.list_(pa.string())),
    ]
)


class Model:
    """A table as a dict, to which the same things are done one row after the other."""

    def __init__(self, key: tuple[str, ...]) -> None:
        self.key = key
        self.rows: dict[Key, Row] = {}

    def of(self, row: Row) -> Key:
        return tuple(row[name] for name in self.key)

    def each(self, rows: list[Row], act: Callable[[Row | None, Row], Row | bool | None]) -> list[bool]:
        """Do something to each row; what it returns is the row from then on, or True to leave it."""
        done = []
        for row in rows:
            now = act(self.rows.get(self.of(row)), row)
            done.append(now is not True)
            if now is None:
                self.rows.pop(self.of(row), None)
            elif now is not True and now is not False:
                self.rows[self.of(row)] = now
        return done

    def upsert(self, rows: list[Row], holds: Callable[[Row, Row], bool]) -> list[bool]:
        return self.each(rows, lambda old, new: whole(new) if old is None or holds(old, new) else True)

    def insert(self, rows: list[Row]) -> list[bool]:
        return self.each(rows, lambda old, new: whole(new) if old is None else True)

    def patch(self, rows: list[Row], holds: Callable[[Row, Row], bool], missing: str) -> list[bool]:
        def act(old: Row | None, new: Row) -> Row | bool:
            if old is None:
                return whole(new) if missing == "insert" else True
            return {**old, **new} if holds(old, new) else True

        return self.each(rows, act)

    def delete(self, rows: list[Row], holds: Callable[[Row, Row], bool]) -> list[bool]:
        return self.each(rows, lambda old, new: None if old is not None and holds(old, new) else True)


def whole(row: Row) -> Row:
    return {name: row.get(name) for name in SCHEMA.names}


def older(old: Row, new: Row) -> bool:
    """What the condition ``version < new.version`` says."""
    return None not in (old["version"], new.get("version")) and old["version"] < new["version"]


def even(old: Row, new: Row) -> bool:
    """What the condition ``version % 2 = 0`` says."""
    return old["version"] is not None and old["version"] % 2 == 0


CONDITIONS: list[tuple[str | None, Callable[[Row, Row], bool]]] = [
    (None, lambda old, new: True),
    ("version < new.version", older),
    ("version % 2 = 0", even),
    (
        "name IS NULL OR name <> new.name",
        lambda old, new: (
            True if old["name"] is None else (new.get("name") is not None and old["name"] != new["name"])
        ),
    ),
]


def draw_rows(chance: random.Random, columns: list[str]) -> list[Row]:
    rows = []
    for _ in range(chance.choice([1, 1, 2, 7])):
        row: Row = {"id": chance.randrange(12), "kind": chance.choice("ab")}
        if "version" in columns:
            row["version"] = chance.choice([None, *range(9)])
        if "name" in columns:
            row["name"] = chance.choice([None, "x", "y", "z"])
        if "tags" in columns:
            row["tags"] = chance.choice([None, [], ["t", None]])
        rows.append(row)
    return rows


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 8))]
)
def test_what_is_decided_is_what_a_dict_decides(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    key = [("id",), ("id", "kind")][seed % 2]
    schema = SCHEMA if len(key) > 1 else SCHEMA.set(1, pa.field("kind", pa.string()))
    shard_by = [None, weir.bucket("id", 2)][seed // 2 % 2]
    table = weir.create(str(tmp_path / "t"), schema=schema, primary_key=list(key), shard_by=shard_by)
    model = Model(key)
    writer = table.writer(max_memtable_rows=20)
    for _ in range(40):
        what = chance.choice(["upsert", "insert", "patch", "patch", "delete", "where", "apply", "upkeep"])
        text, holds = chance.choice(CONDITIONS)
        if what == "upsert":
            rows = draw_rows(chance, SCHEMA.names)
            check(writer.upsert(rows, condition=text), rows, model.upsert(rows, holds), model, text)
        elif what == "insert":
            rows = draw_rows(chance, SCHEMA.names)
            check(writer.insert(rows), rows, model.insert(rows), model)
        elif what == "patch":
            columns = chance.choice([["version"], ["name", "version"], ["name"], ["tags"]])
            rows = draw_rows(chance, columns)
            if text is not None and "new" in text and chance.random() < 0.5:
                text, holds = CONDITIONS[2]
            missing: Literal["skip", "insert"] = chance.choice(["skip", "insert"])
            if len(key) == 1 and chance.random() < 0.5:
                rows = [{name: value for name, value in row.items() if name != "kind"} for row in rows]
            done = model.patch(rows, holds, missing)
            check(writer.patch(rows, condition=text, missing=missing), rows, done, model)
        elif what == "delete":
            rows = draw_rows(chance, [])
            if text is not None and "new" in text:
                text, holds = CONDITIONS[2]
            done = model.delete(rows, holds)
            found = writer.delete(rows, condition=text)
            if text is not None:
                check(found, rows, done, model)
        elif what == "where":
            changed_by_filter(chance, writer, model)
        elif what == "apply":
            first, second = draw_rows(chance, SCHEMA.names), draw_rows(chance, ["version"])
            found = writer.apply(
                [weir.Upsert(first, "version < new.version"), weir.Patch(second), weir.Delete(first[:1])]
            )
            model.upsert(first, older)
            model.patch(second, lambda old, new: True, "skip")
            model.delete(first[:1], lambda old, new: True)
            assert found.done is not None
        elif chance.random() < 0.4:
            writer.flush()
        elif chance.random() < 0.5:
            writer.flush()
            merge(table)
        else:
            writer.close() if chance.random() < 0.5 else writer._shards.abandon()
            writer = table.writer(max_memtable_rows=20)
        assert stored(table, model) == model.rows
    writer.close()
    assert stored(weir.open(str(tmp_path / "t")), model) == model.rows


def merge(table: weir.Table) -> None:
    table.maintenance.merge()


def changed_by_filter(chance: random.Random, writer: TableWriter, model: Model) -> None:
    bound = chance.randrange(9)
    matching = [
        key for key, row in model.rows.items() if row["version"] is not None and row["version"] > bound
    ]
    if chance.random() < 0.5:
        found = writer.delete(where=f"version > {bound}")
        for key in matching:
            del model.rows[key]
    else:
        found = writer.update(f"version > {bound}", {"version": "version - 1", "name": "'u'"})
        for key in matching:
            model.rows[key] = {**model.rows[key], "version": model.rows[key]["version"] - 1, "name": "u"}
    assert found.rows == len(matching)
    assert found.remaining == 0


def stored(table: weir.Table, model: Model) -> dict[Key, Row]:
    return {model.of(row): row for row in table.scan().to_table().to_pylist()}


def check(
    found: WriteResult,
    rows: list[Row],
    done: list[bool],
    model: Model,
    text: str | None = "",
) -> None:
    """Compare what was told with what the model did; shards answer one after the other."""
    if text is None:
        return
    assert found.done is not None
    assert found.skipped is not None
    told = [sorted(tuple(row.values()) for row in one.to_pylist()) for one in (found.done, found.skipped)]
    wanted = [
        sorted(model.of(row) for row, was in zip(rows, done, strict=True) if was == one)
        for one in (True, False)
    ]
    assert told == wanted
    assert found.rows == sum(done)


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("text", pa.string())])
    return weir.create(str(tmp_path / "table"), schema=schema, primary_key="id")


def rows_of(table: weir.Table) -> list[Row]:
    return cast(list[Row], table.scan().to_table().sort_by("id").to_pylist())


def test_no_increment_is_lost_and_none_counts_twice(table: weir.Table) -> None:
    """Threads that compare and set, insert, and increment by filter; flushes and merges go on beside."""
    with table.writer(max_memtable_rows=30) as writer:
        writer.upsert([{"id": 0, "n": 0}, {"id": 1, "n": 0}])
        won = []

        def compare_and_set(thread: int) -> None:
            done = 0
            while done < 6:
                seen = table.get([0]).to_pylist()[0]["n"]
                found = writer.patch([{"id": 0, "n": seen + 1}], condition="n = new.n - 1")
                done += found.rows

        def increment(thread: int) -> None:
            for number in range(6):
                assert writer.update("id = 1", {"n": "n + 1"}).rows == 1
                won.append(writer.insert([{"id": 100 + number, "text": str(thread)}]).rows)

        with ThreadPoolExecutor(6) as pool:
            futures = [
                pool.submit(act, thread) for thread in range(3) for act in (compare_and_set, increment)
            ]
            writer.flush()
            merge(table)
            for future in futures:
                future.result()
    assert [row["n"] for row in rows_of(table)[:2]] == [18, 18]
    assert sum(won) == 6


def test_by_filter_hits_what_comes_to_match_meanwhile(
    table: weir.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with table.writer() as writer:
        writer.upsert([{"id": one, "n": one} for one in range(4)])
        found = writer._find_rows

        def then_others_write(columns: Any, where: str) -> pa.Table:
            keys = found(columns, where)
            writer.upsert([{"id": 0, "n": 50}, {"id": 3, "n": 0}, {"id": 9, "n": 60}])
            writer.flush()
            writer.upsert([{"id": 10, "n": 70}])
            return keys

        monkeypatch.setattr(writer, "_find_rows", then_others_write)
        result = writer.update("n >= 2", {"n": "n + 100"})
        monkeypatch.undo()
        assert sorted(result.done.column(0).to_pylist()) == [0, 2, 9, 10]  # type: ignore[union-attr]
    assert [(row["id"], row["n"]) for row in rows_of(table)] == [
        *((0, 150), (1, 1), (2, 102), (3, 0), (9, 160), (10, 170))
    ]


def test_a_limit_leaves_the_rest_and_says_how_many(table: weir.Table) -> None:
    with table.writer() as writer:
        writer.upsert([{"id": one, "n": 1} for one in range(10)])
        found = writer.delete(where="n = 1", limit=4)
        assert (found.rows, found.remaining) == (4, 6)
        assert writer.delete(where="n = 1").rows == 6
    assert rows_of(table) == []


def test_many_rows_by_filter_go_in_parts_and_each_once(
    table: weir.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weir.write.decision.by_filter._ROWS_OF_A_PART", 7)
    with table.writer() as writer:
        writer.upsert([{"id": one, "n": one} for one in range(40)])
        assert writer.update("n >= 0", {"n": "n + 1000"}).rows == 40
    assert [row["n"] for row in rows_of(table)] == [one + 1000 for one in range(40)]


def test_all_or_nothing_is_so_in_a_group_too(table: weir.Table) -> None:
    """An append to a log that somebody else has appended to is not done at all."""
    with table.writer(max_wal_delay=0.2) as writer:
        writer.upsert([{"id": 0, "n": 0}])
        barrier = threading.Barrier(4)

        def append(thread: int) -> int:
            barrier.wait()
            head = weir.Patch([{"id": 0, "n": 1}], condition="n = new.n - 1")
            events = weir.Insert([{"id": 10 * thread + one, "n": thread} for one in range(1, 4)])
            return writer.apply([head, events], all_or_nothing=True).rows

        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(append, range(1, 5)))
    assert sorted(done) == [0, 0, 0, 4]
    assert len(rows_of(table)) == 4


def test_one_look_up_and_one_entry_for_a_group(table: weir.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    from weir.write.decision.present_rows import PresentRows

    with table.writer(max_wal_delay=0.5) as writer:
        writer.upsert([{"id": one, "n": 0} for one in range(20)])
        asked = []
        find = PresentRows.find

        def counted(self: PresentRows, keys: Any, *others: Any) -> Any:
            asked.append(len(keys))
            return find(self, keys, *others)

        monkeypatch.setattr(PresentRows, "find", counted)
        futures = [writer.patch([{"id": one, "n": 5}], condition="n = 0", wait=False) for one in range(16)]
        futures.append(writer.upsert([{"id": 3, "n": 7}], wait=False))
        futures.append(writer.patch([{"id": 3, "text": "late"}], condition="n = 7", wait=False))
        positions = {position for future in futures for position in future.result().positions.values()}
    assert len(positions) == len(asked) <= 2
    assert sum(asked) <= 17
    assert rows_of(table)[3] == {"id": 3, "n": 7, "text": "late"}


def test_one_bad_row_fails_its_own_write_alone(table: weir.Table) -> None:
    with table.writer(max_wal_delay=0.3) as writer:
        writer.upsert([{"id": 1, "n": 0}, {"id": 2, "n": 5}])
        futures = [
            writer.patch([{"id": one, "text": "x"}], condition="10 / n = 2", wait=False) for one in (1, 2)
        ]
        plain = writer.upsert([{"id": 3, "n": 3}], wait=False)
        with pytest.raises(FilterError, match="fails on a row"):
            futures[0].result()
        assert futures[1].result().rows == 1
        assert plain.result().rows == 1
    assert [row["text"] for row in rows_of(table)] == [None, "x", None]


@pytest.mark.parametrize("flushes", [True, False])
def test_what_is_merged_and_collected_is_found_by_a_writer_that_is_behind(
    table: weir.Table, monkeypatch: pytest.MonkeyPatch, flushes: bool
) -> None:
    """The writer has seen the base table before the merge, and its generations are off the list or gone."""
    monkeypatch.setattr("weir.write.columns.seen", lambda base: SeenVersion())
    monkeypatch.setattr("weir.write.columns._LOOK_SECONDS", 1e9)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "n": 1}, {"id": 2, "n": 2}])
        writer.flush()
        assert writer._columns.current().base.version == table.status().base_version
        other = weir.open(table.uri)
        other.maintenance.merge()
        for _ in range(4):
            other.maintenance.collect_garbage(horizon=timedelta(0))
        table.engine.cache.clear()
        if flushes:
            writer.upsert([{"id": 3, "n": 3}])
            writer.flush()
        assert writer._columns.current().base.version < table.status().base_version
        assert writer.patch([{"id": 1, "text": "seen"}], condition="n = 1").rows == 1
        assert writer.insert([{"id": 2, "n": 7}]).rows == 0
    assert rows_of(table)[:2] == [{"id": 1, "n": 1, "text": "seen"}, {"id": 2, "n": 2, "text": None}]


def test_a_repeated_write_with_a_source_is_decided_once(table: weir.Table) -> None:
    source = weir.Source("job", 1)
    with table.writer() as writer:
        assert writer.insert([{"id": 1, "n": 1}]).rows == 1
        assert writer.patch([{"id": 1, "n": 2}], condition="n = 5", source=source).rows == 0
        writer.upsert([{"id": 1, "n": 5}])
    with table.writer() as writer:
        # It was decided before; that the condition would hold now changes nothing.
        again = writer.patch([{"id": 1, "n": 2}], condition="n = 5", source=source)
        assert again.deduplicated
        assert again.done is None
    assert rows_of(table)[0]["n"] == 5


def test_nothing_is_decided_by_a_writer_that_is_fenced(table: weir.Table) -> None:
    with table.writer() as first:
        first.insert([{"id": 1, "n": 1}])
        with table.writer(takeover=True) as second:
            second.delete([1])
            with pytest.raises(weir.errors.FencedError):
                first.insert([{"id": 1, "n": 2}])


@pytest.mark.parametrize(
    ("act", "error", "says"),
    [
        (lambda w: w.upsert([{"id": 1}], condition="n <"), FilterError, "cannot be used"),
        (lambda w: w.upsert([{"id": 1}], condition="other = 1"), FilterError, "other"),
        (lambda w: w.upsert([{"id": 1}], condition="new.other = 1"), FilterError, "other"),
        (
            lambda w: w.upsert([{"id": 1}], condition=" OR ".join(f"n = {n}" for n in range(1000))),
            FilterError,
            "as a list",
        ),
        (lambda w: w.upsert([{"id": 1}], condition="n"), FilterError, "must be true or false"),
        (lambda w: w.upsert([{"id": 1}], condition="sum(n) > 1"), FilterError, "one row"),
        (lambda w: w.upsert([{"id": 1}], condition=" "), FilterError, "SQL text"),
        (lambda w: w.delete([1], condition="new.n = 1"), FilterError, "new"),
        (lambda w: w.patch([{"id": 1}]), InputError, "sets no column"),
        (lambda w: w.patch([{"n": 1}]), KeyValueError, "missing"),
        (lambda w: w.patch([{"id": 1, "n": 1}, {"id": None, "n": 1}]), KeyValueError, "row 1"),
        (lambda w: w.patch([{"id": 1, "other": 1}]), SchemaError, "other"),
        (lambda w: w.patch([{"id": 1, "n": 1}], missing="x"), InputError, "missing"),
        (lambda w: w.update("n = 1", {"id": "2"}), InputError, "primary key"),
        (lambda w: w.update("n = 1", {"n": "text ||"}), FilterError, "set"),
        (lambda w: w.update("n = 1", {"text": "make_array(1)"}), FilterError, "type"),
        (lambda w: w.update("n = ", {"n": "1"}), FilterError, "filter"),
        (lambda w: w.update("n = 1", {}), InputError, "set"),
        (lambda w: w.delete(where="n = 1", limit=-1), InputError, "limit"),
        (lambda w: w.delete([1], where="n = 1"), InputError, "no keys"),
        (lambda w: w.apply([weir.Delete([1]), "x"]), InputError, "operation"),
    ],
)
def test_bad_input_is_named_and_changes_nothing(
    table: weir.Table, act: Callable[[TableWriter], object], error: type[Exception], says: str
) -> None:
    with table.writer() as writer:
        writer.upsert([{"id": 1, "n": 1}])
        with pytest.raises(error, match=says):
            act(writer)
    assert rows_of(table) == [{"id": 1, "n": 1, "text": None}]


def test_a_writer_that_is_open_decides_on_what_plain_lance_has_written_meanwhile(tmp_path: Path) -> None:
    """Nobody in this process has read the table since, and the writer has looked at it long ago."""
    place = str(tmp_path / "t")
    schema = pa.schema([SCHEMA.field("id"), SCHEMA.field("version"), SCHEMA.field("name")])
    table = weir.create(place, schema, primary_key="id", fsync=False)

    def merge_insert(rows: list[Row]) -> None:
        dataset = lance.dataset(place)
        upsert = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        upsert.execute(pa.Table.from_pylist(rows, dataset.schema))

    row: Row = {"version": 1, "name": "by Lance"}
    with table.writer() as writer:
        writer.upsert([{**row, "id": 0}])
        assert writer.patch([{"id": 1, "name": "x"}]).rows == 0
        merge_insert([{**row, "id": number} for number in (1, 2, 3, 4)])
        assert writer.patch([{"id": 1, "version": 7}]).rows == 1
        merge_insert([{**row, "id": 5}])
        assert writer.insert([{**row, "id": 5, "name": "again"}]).rows == 0
        merge_insert([{**row, "id": 2, "version": 8}])
        same = {**row, "id": 2, "version": 8}
        assert writer.upsert([same], condition="version < new.version").rows == 0
        lance.dataset(place).update({"name": "'renamed'"}, "id = 3")
        assert writer.delete([3], condition="name = 'renamed'").rows == 1
        lance.dataset(place).delete("id = 4")
        assert writer.patch([{"id": 4, "version": 9}]).rows == 0
        lance.dataset(place).add_columns(pa.field("extra", pa.int64()))
        lance.dataset(place).update({"extra": "5"}, "id = 2")
        assert writer.patch([{"id": 2, "name": "patched"}]).rows == 1
        assert writer.update("id = 5", {"extra": "version + 1"}).rows == 1
    expected: list[Row] = [
        {**row, "id": 0, "extra": None},
        {**row, "id": 1, "version": 7, "extra": None},
        {**row, "id": 2, "version": 8, "name": "patched", "extra": 5},
        {**row, "id": 5, "extra": 2},
    ]
    assert rows_of(table) == expected


def test_decided_writes_of_many_threads_share_looks_at_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    threads, looks = 8, [0]
    arrived, first = threading.Semaphore(0), threading.Event()
    latest = BaseTable.latest

    def counted(base: BaseTable) -> BaseTable:
        looks[0] += 1
        if looks[0] == 1:
            # The others wait for their turn.
            first.set()
            for _ in range(threads - 1):
                assert arrived.acquire(timeout=60)
        return latest(base)

    with table.writer() as writer, ThreadPoolExecutor(threads) as pool:
        writer.upsert([{"id": 0, "kind": "k"}])
        newest = FollowedColumns.newest

        def noted(columns: FollowedColumns) -> TableColumns:
            if first.is_set():
                arrived.release()
            return newest(columns)

        monkeypatch.setattr(BaseTable, "latest", counted)
        monkeypatch.setattr(FollowedColumns, "newest", noted)
        leading = pool.submit(writer.insert, [{"id": 100, "kind": "k"}])
        assert first.wait(60)
        others = [pool.submit(writer.insert, [{"id": n, "kind": "k"}]) for n in range(1, threads)]
        assert sum(one.result().rows for one in (leading, *others)) == threads
        assert looks[0] <= 3, "one look for the first, one for all that waited, one beside a write"


def test_many_rows_of_one_key_are_decided_one_after_the_other(table: weir.Table) -> None:
    """Each finds what those before it have left, also where rows that were replaced are dropped meanwhile."""
    numbers = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9] * 8
    with table.writer() as writer:
        writer.upsert([{"id": key, "n": 0, "text": "kept"} for key in (1, 2)])
        result = writer.patch(
            [{"id": key, "n": number * key} for number in numbers for key in (1, 2)], condition="n < new.n"
        )
        rising = [1 for at, number in enumerate(numbers) if number > max([0, *numbers[:at]])]
        assert result.rows == 2 * len(rising)
        undone = [
            weir.Patch([{"id": 1, "n": number} for number in numbers]),
            weir.Insert([{"id": 2, "n": 5}]),
        ]
        assert writer.apply(undone, all_or_nothing=True).rows == 0
    assert rows_of(table) == [{"id": 1, "n": 9, "text": "kept"}, {"id": 2, "n": 18, "text": "kept"}]


@pytest.mark.parametrize("seed", range(8))
def test_conditions_of_many_rows_of_a_key_are_those_of_their_turn(
    table: weir.Table, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """However they are evaluated ahead, and with far fewer evaluations than there are rows."""
    chance = random.Random(seed)
    held: dict[int, int] = {}
    evaluations = 0
    evaluate = RowExpression.evaluate

    def counted(*args: Any) -> Any:
        nonlocal evaluations
        evaluations += 1
        return evaluate(*args)

    monkeypatch.setattr(RowExpression, "evaluate", counted)
    conditions: dict[str, Callable[[int, int], bool]] = {
        "n < new.n": lambda old, new: old < new,
        "n % 3 <> new.n % 3": lambda old, new: old % 3 != new % 3,
        "new.n >= 2 and n <> 5": lambda old, new: new >= 2 and old != 5,
    }
    with table.writer(flush_on_close=False) as writer:
        for _ in range(3):
            condition = chance.choice(list(conditions))
            rows = [(chance.randrange(3), chance.randrange(12)) for _ in range(150)]
            work: list[weir.Upsert | weir.Patch | weir.Delete] = []
            done = []
            for start in range(0, len(rows), 50):
                part = rows[start : start + 50]
                as_rows = [{"id": key, "n": number} for key, number in part]
                if start == 50 and chance.random() < 0.5:
                    work.append(weir.Patch(as_rows, condition))
                    makes = False
                else:
                    work.append(weir.Upsert(as_rows, condition))
                    makes = True
                for key, number in part:
                    is_done = conditions[condition](held[key], number) if key in held else makes
                    done.append(is_done)
                    if is_done:
                        held[key] = number
            result = writer.apply(work)
            assert result.done is not None
            assert result.done["id"].to_pylist() == [
                key for (key, _), is_done in zip(rows, done, strict=True) if is_done
            ]
            assert {row["id"]: row["n"] for row in rows_of(table)} == held
    assert evaluations < 3 * 150


def test_a_condition_that_fails_on_rows_that_no_turn_meets_is_none_the_worse(table: weir.Table) -> None:
    rows = [{"id": 1, "n": n, "text": "no number" if n < 0 else str(n)} for n in (1, -1, 2, -2, 3, -3, 4)]
    with table.writer() as writer:
        result = writer.upsert(rows, condition="cast(text as bigint) < new.n")
    assert result.rows == 4
    assert rows_of(table) == [{"id": 1, "n": 4, "text": "4"}]
