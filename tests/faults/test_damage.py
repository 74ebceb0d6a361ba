"""Files of every kind, cut short and with bits turned over: loud, with the path, and never wrong (I11).

What Weir writes itself has a checksum, and is never taken for something else. Lance's files have none:
one that is cut short is noticed; a bit that turned over may be, and if it is not, a value may be wrong
(docs/reliability.md, "Not promised"). Even then nothing else than an error of Weir's comes out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from weir.engine.context import default_context
from weir.errors import CorruptionError, WeirError
from weir.format import generation_catalog
from weir.lsm.generation_files import check_generation_files
from weir.storage.local import LocalStore
from weir.write.table_writer import TableWriter

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
FLIPS = 6


class Whole:
    """A table with something of every kind in it, and the rows that it holds."""

    def __init__(self, directory: Path) -> None:
        self.uri = directory / "table"
        table = weir.create(self.uri, SCHEMA, primary_key="id", fsync=False)
        self.rows: dict[int, str] = {}
        with table.writer() as writer:
            self._upsert(writer, range(50), "base")
        table.maintenance.merge()
        table.changes(consumer="somebody").commit()
        table.snapshot()
        with table.writer(flush_on_close=False) as writer:
            self._upsert(writer, range(40, 80), "generation")
            writer.flush()
            self._upsert(writer, range(70, 100), "log")
        table.maintenance.collect_garbage(horizon=0)

    def _upsert(self, writer: TableWriter, keys: range, text: str) -> None:
        rows = {key: f"{text} {key}" for key in keys}
        writer.upsert([{"id": key, "name": name} for key, name in rows.items()])
        self.rows |= rows

    def newest(self, pattern: str) -> Path:
        found = [path for path in self.uri.glob(pattern) if path.is_file()]
        assert found, pattern
        return max(found, key=lambda path: path.stat().st_mtime_ns)

    def read(self, how: Callable[[weir.Table], pa.Table]) -> dict[int, str]:
        default_context().cache.clear()
        found = how(weir.open(self.uri, fsync=False))
        return dict(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))

    def check(self) -> None:
        for how in READS:
            assert self.read(how) == self.rows


READS: tuple[Callable[[weir.Table], pa.Table], ...] = (
    lambda table: table.scan().to_table(),
    lambda table: table.get(list(range(120))),
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    made = Whole(tmp_path_factory.mktemp("damage"))
    made.check()
    return made


@contextmanager
def replaced(path: Path, content: bytes) -> Iterator[None]:
    """Put other bytes into a file for the length of a block."""
    original = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(original)


def cut(path: Path) -> Iterator[bytes]:
    original = path.read_bytes()
    # JSON ends with a newline that carries nothing.
    for length in (0, len(original) // 2, len(original) - 2):
        yield original[:length]


def flipped(path: Path) -> Iterator[bytes]:
    original = path.read_bytes()
    dice = random.Random(str(len(original)))
    for at in dice.sample(range(len(original)), min(FLIPS, len(original))):
        damaged = bytearray(original)
        damaged[at] ^= 1 << dice.randrange(8)
        yield bytes(damaged)


@pytest.mark.parametrize("pattern", ["_mem_wal/*/wal/*.arrow", "_mem_wal/*/manifest/*.binpb"])
def test_what_every_read_needs(whole: Whole, pattern: str) -> None:
    path = whole.newest(pattern)
    for content in (*cut(path), *flipped(path)):
        with replaced(path, content):
            for how in READS:
                with pytest.raises(CorruptionError) as caught:
                    whole.read(how)
                assert str(path) in str(caught.value)
    whole.check()


def collect(table: weir.Table) -> object:
    return table.maintenance.collect_garbage(horizon=timedelta(0))


def claim(table: weir.Table) -> None:
    with table.writer() as writer:
        writer.upsert([{"id": 0, "name": "not to be"}])


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("pattern", "work"),
    [
        ("_mem_wal/*/lease.json", claim),
        ("_weir/garbage/marks.json", collect),
        ("_weir/snapshots/*.json", collect),
        (
            "_weir/consumers/somebody.json",
            collect,
        ),
        ("_weir/consumers/somebody.json", lambda table: table.changes(consumer="somebody")),
    ],
    ids=["lease", "marks", "pin", "consumer at collection", "consumer at reading"],
)
def test_what_only_some_need(whole: Whole, pattern: str, work: Callable[[weir.Table], object]) -> None:
    path = whole.newest(pattern)
    for content in (*cut(path), *flipped(path)):
        with replaced(path, content):
            with pytest.raises(CorruptionError) as caught:
                work(weir.open(whole.uri, fsync=False))
            assert str(path) in str(caught.value)
            whole.check()


def test_bloom_filter(whole: Whole, caplog: pytest.LogCaptureFixture) -> None:
    """What it tells the rows tell too: it is reported, and lookups go on without it."""
    path = whole.newest("_mem_wal/*/*_gen_2/bloom_filter.bin")
    for content in (*cut(path), *flipped(path)):
        with replaced(path, content):
            caplog.clear()
            whole.check()
            assert [record.event_fields["where"] for record in caplog.records] == [str(path)]  # type: ignore[attr-defined]
    whole.check()


def test_checksums_find_every_bit_of_a_generation(whole: Whole) -> None:
    """Also one that readers cannot notice, in a page of Lance's."""
    catalog_path = whole.newest("_mem_wal/*/*_gen_2/catalog.json")
    catalog = generation_catalog.decode(catalog_path.read_bytes(), where=str(catalog_path))
    directory = str(catalog_path.parent.relative_to(whole.uri))
    store = LocalStore(whole.uri, fsync=False)
    assert check_generation_files(store, directory, catalog) == ()
    for name in catalog.checksums:
        path = catalog_path.parent / name
        for content in (*cut(path), *flipped(path)):
            with replaced(path, content):
                damaged = check_generation_files(store, directory, catalog)
                assert [one.path for one in damaged] == [f"{directory}/{name}"]


@pytest.mark.parametrize(
    "pattern", ["_mem_wal/*/manifest/version_hint.json", "_versions/latest_version_hint.json"]
)
def test_what_only_saves_time(whole: Whole, pattern: str) -> None:
    path = whole.newest(pattern)
    for content in (*cut(path), *flipped(path), b'{"version":1}', b'{"version":999}', b'{"version":-1}'):
        with replaced(path, content):
            whole.check()


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "pattern",
    [
        "data/*.lance",
        "_indices/*/page_data.lance",
        "_indices/*/page_lookup.lance",
        "_versions/*.manifest",
        "_mem_wal/*/*_gen_2/data/*.lance",
        "_mem_wal/*/*_gen_2/_versions/*.manifest",
    ],
)
def test_files_of_lance(whole: Whole, pattern: str) -> None:
    path = whole.newest(pattern)
    for content in cut(path):
        with replaced(path, content):
            for how in READS:
                try:
                    assert whole.read(how) == whole.rows
                except CorruptionError as error:
                    assert error.where is not None
                    assert error.where.startswith(str(whole.uri))
    for content in flipped(path):
        with replaced(path, content):
            for how in READS:
                try:
                    whole.read(how)
                except WeirError as error:
                    assert isinstance(error, CorruptionError), error
    whole.check()
