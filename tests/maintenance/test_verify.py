"""A healthy table has no finding; a damaged one has exactly the finding of its damage."""

from __future__ import annotations

import pickle
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter

import weir
import weir.base.published
import weir.maintenance.verify
from tests.storage.s3 import S3Endpoint, s3_endpoint
from weir.base.details_commit import update_details
from weir.base.index_list import list_indexes
from weir.base.manifest import manifest_path
from weir.base.merge_guard import guard_id
from weir.base.published import publish_shards
from weir.base.table import BaseTable
from weir.engine.context import default_context
from weir.errors import CorruptionError
from weir.format import (
    feed_consumer,
    garbage_marks,
    generation_catalog,
    keys,
    layout,
    lease,
    pk_index,
    shard_manifest,
    snapshot_pin,
    wal_entry,
)
from weir.format.file_checksums import CHECKSUMS
from weir.format.garbage_marks import MARKS, Marks, ShardMarks, Step
from weir.format.generation_catalog import GenerationCatalog
from weir.format.index_details import IndexCatchup, IndexDetails, MergedGeneration, ShardFieldSpec, ShardSpec
from weir.format.shard_manifest import FlushedGeneration, ShardManifest
from weir.format.wal_entry import wal_schema
from weir.format.wal_header import WalEntryHeader
from weir.log.manifest_store import read_latest_manifest
from weir.maintenance.verification.whole import check_whole
from weir.maintenance.verify import VerifyReport
from weir.storage.counting import CountingStore
from weir.storage.interface import ObjectStore
from weir.storage.open import open_store

__all__ = ["s3_endpoint"]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
KEYED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("name", pa.string()),
    ]
)
NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look again at once: nothing here settles by itself."""
    monkeypatch.setattr(weir.maintenance.verify, "_LOOK_AGAIN_AFTER_SECONDS", (0.0,))
    default_context().cache.clear()


def found(report: VerifyReport) -> list[tuple[str, str]]:
    """Return severity and check of every finding."""
    return [(one.severity.value, one.check) for one in report.findings]


def verify(uri: str | Path) -> VerifyReport:
    default_context().cache.clear()
    return weir.open(uri, fsync=False).maintenance.verify()


def people(*ids: int, name: str = "x") -> list[dict[str, Any]]:
    return [{"id": one, "name": name} for one in ids]


# --- Healthy tables -------------------------------------------------------------------------------


def test_a_table_in_every_state_of_its_life(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), fsync=False)
    assert table.maintenance.verify().findings == ()
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(people(*range(20)))
        writer.flush()
        writer.upsert(people(*range(10), name="y"))
        writer.delete([3])
        assert verify(table.uri).findings == ()
    report = verify(table.uri)
    assert report.findings == ()
    assert (report.shards, report.generations) == (2, 2)
    with table.writer() as writer:
        writer.upsert(people(5))
    assert verify(table.uri).findings == ()
    table.maintenance.merge()
    assert verify(table.uri).findings == ()
    table.snapshot()
    list(table.changes(consumer="billing"))
    with table.writer() as writer:
        writer.upsert(people(6, 7))
    table.maintenance.merge()
    for _ in range(3):
        table.maintenance.collect_garbage(horizon=timedelta(0))
        assert verify(table.uri).findings == ()
    lance.dataset(table.uri).create_scalar_index("name", "BTREE")
    lance.dataset(table.uri).optimize.compact_files()
    assert verify(table.uri).findings == ()


KEYS: dict[str, tuple[list[tuple[str, pa.DataType]], Callable[[int], dict[str, Any]]]] = {
    "string": ([("k", pa.string())], lambda n: {"k": f"key {n}"}),
    "binary": ([("k", pa.binary())], lambda n: {"k": bytes([0, n])}),
    "uint64": ([("k", pa.uint64())], lambda n: {"k": 2**63 + n}),
    "bool": ([("k", pa.bool_())], lambda n: {"k": bool(n % 2)}),
    "composite": (
        [("a", pa.string()), ("b", pa.int16())],
        lambda n: {"a": "x\x00" * (n % 3), "b": n - 4},
    ),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_kind(tmp_path: Path, kind: str) -> None:
    columns, row = KEYS[kind]
    schema = pa.schema([*columns, ("vector", pa.list_(pa.float32(), 2)), ("tags", pa.list_(pa.string()))])
    key = [name for name, _ in columns]
    table = weir.create(tmp_path / "t", schema, primary_key=key, shard_by=weir.bucket(key[0], 2), fsync=False)
    for turn in range(2):
        with table.writer(flush_on_close=turn == 0) as writer:
            writer.upsert([{**row(n), "vector": [1.0, 2.0], "tags": ["a", None]} for n in range(8)])
            writer.delete([row(1)])
    assert verify(table.uri).findings == ()
    table.maintenance.merge()
    assert verify(table.uri).findings == ()


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "shard_by",
    [
        weir.identity("id"),
        weir.unsharded(),
        [weir.truncate("id", 3), weir.bucket("id", 2)],
        weir.identity("name", immutable=True),
        weir.bucket("id", 1),
    ],
    ids=["identity", "unsharded", "two fields", "outside the key", "one bucket"],
)
def test_shards_of_every_kind(tmp_path: Path, shard_by: Any) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=shard_by, fsync=False)
    with table.writer() as writer:
        writer.upsert([{"id": n, "name": None if n == 3 else "xy"[n % 2]} for n in range(6)])
    table.maintenance.merge()
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": 4, "name": "x"}])
    assert verify(table.uri).findings == ()


def test_more_than_one_page_of_keys(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert(pa.table({"id": pa.array(range(20_000)), "name": pa.nulls(20_000, pa.string())}))
    assert verify(table.uri).findings == ()


def test_generations_with_indexes_and_catalogs(tmp_path: Path) -> None:
    """Vectors and numbers, with nulls, infinities and a value that is no number."""
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("score", pa.float64()),
            ("name", pa.string()),
            ("vector", pa.list_(pa.float32(), 2)),
        ]
    )
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    for column in ("score", "name"):
        table.indexes.create(column, "BTREE")
    scores = [None, float("inf"), -0.0, 2.5]
    with table.writer() as writer:
        writer.upsert([{"id": n, "score": scores[n % 4], "name": "x" * n} for n in range(40)])
        writer.delete([3])
        writer.flush()
        writer.upsert([{"id": 1, "score": float("nan"), "vector": [1.0, 2.0]}])
    assert verify(table.uri).findings == ()
    table.maintenance.merge()
    table.maintenance.catch_up_indexes()
    table.maintenance.compact()
    assert verify(table.uri).findings == ()


def test_a_table_with_its_shard_snapshot_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weir.base.published, "INLINE_SHARDS", 1)
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), fsync=False)
    with table.writer() as writer:
        writer.upsert(people(*range(20)))
    table.maintenance.merge()
    assert verify(table.uri).findings == ()


def test_a_table_of_the_library(tmp_path: Path) -> None:
    """With superseded rows in its generations, a tail, and later merged by Weir."""
    uri = str(tmp_path / "t")
    dataset = lance.write_dataset(pa.table({"id": [1, 2], "name": ["a", "b"]}, schema=KEYED), uri)
    dataset.initialize_mem_wal(bucket_column="id", num_buckets=1)
    assert verify(uri).findings == ()
    shard = str(uuid4())
    for _ in range(3):
        with dataset.mem_wal_writer(shard, max_memtable_rows=4) as writer:
            writer.put(pa.table({"id": [1, 1, 2], "name": ["a", "b", "c"]}, schema=KEYED))
            writer.put(pa.table({"id": [2, 3], "name": ["d", "e"]}, schema=KEYED))
            writer.delete(pa.table({"id": [3]}))
            writer.put(pa.table({"id": [5, 5, 5, 6], "name": ["d", "e", "f", "g"]}, schema=KEYED))
    report = verify(uri)
    assert report.findings == ()
    assert report.generations == 9
    writer = dataset.mem_wal_writer(shard)
    writer.put(pa.table({"id": [1, 7, 7], "name": ["a", "b", "c"]}, schema=KEYED))
    assert verify(uri).findings == ()
    table = weir.open(uri, fsync=False)
    table.maintenance.merge()
    assert verify(uri).findings == ()
    with table.writer(takeover=True) as ours:
        ours.upsert(people(1, 9))
    table.maintenance.merge()
    assert verify(uri).findings == ()
    with dataset.mem_wal_writer(shard) as again:
        again.put(pa.table({"id": [4], "name": ["a"]}, schema=KEYED))
    assert verify(uri).findings == ()


def test_beside_a_writer_a_merger_and_a_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that is only under way is reported."""
    monkeypatch.setattr(weir.maintenance.verify, "_LOOK_AGAIN_AFTER_SECONDS", (0.1, 0.5))
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), fsync=False)
    stop = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        with table.writer(max_memtable_rows=40) as writer:
            number = 0
            while not stop.is_set():
                writer.upsert(people(*range(number % 50, number % 50 + 10), name=str(number)))
                number += 1

    def maintain() -> None:
        while not stop.is_set():
            table.maintenance.merge()
            table.maintenance.collect_garbage(horizon=timedelta(seconds=1))

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in (write, maintain)]
    for thread in threads:
        thread.start()
    try:
        reports = [weir.open(table.uri, fsync=False).maintenance.verify() for _ in range(4)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert [str(one) for report in reports for one in report.findings] == []
    assert reports[-1].entries > 0
    assert verify(table.uri).findings == ()


# --- Damaged tables -------------------------------------------------------------------------------


@dataclass
class Patient:
    """A table to damage, of one shard: generation 1 merged, 2 and 3 not, and a tail of two entries."""

    store: ObjectStore
    shard: UUID

    @property
    def newest(self) -> ShardManifest:
        manifest = read_latest_manifest(self.store, self.shard)
        assert manifest is not None
        return manifest

    @property
    def base(self) -> BaseTable:
        return BaseTable.open(self.store)

    def publish(self, **changes: Any) -> str:
        """Publish a manifest with other values, and return its path."""
        newest = self.newest
        return self.put_manifest(replace(newest, version=newest.version + 1, **changes))

    def put_manifest(self, manifest: ShardManifest) -> str:
        path = layout.manifest_path(self.shard, manifest.version)
        self.store.put(path, shard_manifest.encode(manifest))
        hint = b'{"version": %d}' % manifest.version
        self.store.put(layout.version_hint_path(self.shard), hint)
        return path

    def generation(self, number: int) -> FlushedGeneration:
        return next(one for one in self.newest.flushed_generations if one.generation == number)

    def generation_path(self, number: int) -> str:
        return layout.generation_path(self.shard, self.generation(number).path)

    @property
    def tail(self) -> list[int]:
        """Positions of the tail, in order."""
        first = self.newest.replay_after_wal_entry_position + 1
        names = [one.path.rsplit("/", 1)[-1] for one in self.store.list(layout.wal_directory(self.shard))]
        return sorted(position for position in map(layout.parse_wal_name, names) if position >= first)

    def wal_path(self, position: int) -> str:
        return layout.wal_path(self.shard, position)

    def flip(self, path: str, at: int = -20) -> None:
        """Change one bit of an object."""
        data = bytearray(self.store.get(path))
        data[at] ^= 1
        self.store.put(path, bytes(data))

    def entry(
        self,
        epoch: int,
        rows: Sequence[dict[str, Any]] = (),
        *,
        fence: bool = False,
        claim: str | None = None,
    ) -> bytes:
        schema = wal_schema(SCHEMA)
        batches = [pa.RecordBatch.from_pylist([{**row, "_tombstone": False} for row in rows], schema)]
        header = WalEntryHeader(
            epoch, None if fence else 4, wal_entry.new_write_id(), fence=fence, claim=claim
        )
        return b"".join(map(bytes, wal_entry.encode(header, schema, [] if fence else batches)))

    def change(self, change: Callable[[IndexDetails], IndexDetails]) -> None:
        update_details(self.base, change)

    @property
    def details_path(self) -> str:
        return next(
            one.path
            for one in sorted(self.store.list("_versions"), key=lambda one: one.path)
            if one.path.endswith(".manifest")
        )

    def rewrite(self, path: str, change: Callable[[pa.Table], pa.Table]) -> str:
        """Replace the content of a Lance file."""
        table = change(LanceFileReader(f"{self.store.uri}/{path}").read_all().to_table())
        scratch = f"{self.store.uri}/scratch.lance"
        with LanceFileWriter(scratch, table.schema, version="2.0") as writer:
            for start in range(0, table.num_rows, 8192):
                writer.write_batch(table.slice(start, 8192))
        self.store.put(path, Path(scratch).read_bytes())
        Path(scratch).unlink()
        return path

    def rewrite_rows(self, number: int, rows: pa.Table) -> str:
        """Replace the rows of a generation."""
        path = self.generation_path(number)
        for part in ("data", "_versions", "_transactions", "_deletions"):
            shutil.rmtree(f"{self.store.uri}/{path}/{part}", ignore_errors=True)
        lance.write_dataset(rows, f"{self.store.uri}/{path}")
        return path

    def rows_of(self, number: int) -> pa.Table:
        return lance.dataset(f"{self.store.uri}/{self.generation_path(number)}").to_table()


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once; each test damages a copy."""
    path = tmp_path_factory.mktemp("healthy") / "t"
    # Of what is not synced no checksums are kept.
    table = weir.create(path, SCHEMA, primary_key="id", shard_by=weir.bucket("id", 1))
    with table.writer() as writer:
        writer.upsert(people(*range(10)))
    table.maintenance.merge()
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(people(*range(5, 15)))
        writer.flush()
        writer.upsert(people(*range(10, 20)))
        writer.flush()
        writer.upsert(people(1))
        writer.upsert(people(2))
    return path


@pytest.fixture
def patient(healthy: Path, tmp_path: Path) -> Patient:
    path = tmp_path / "t"
    shutil.copytree(healthy, path)
    (shard,) = weir.open(path).status().shards
    return Patient(open_store(path, fsync=False), shard.shard_id)


Damage = Callable[[Patient], str]
DAMAGES: list[tuple[str, str, Damage]] = []


def damage(severity: str, check: str) -> Callable[[Damage], Damage]:
    """Register what does a damage; it returns the path that the finding is about."""

    def register(do: Damage) -> Damage:
        DAMAGES.append((severity, check, do))
        return do

    return register


def test_the_table_to_be_damaged_is_healthy(patient: Patient) -> None:
    report = verify(patient.store.uri)
    assert report.findings == ()
    assert (report.shards, report.generations, report.passed) == (1, 3, True)


@damage("error", "manifest.unreadable")
def flipped_manifest(patient: Patient) -> str:
    path = layout.manifest_path(patient.shard, patient.newest.version - 1)
    patient.flip(path)
    return path


@damage("error", "manifest.name")
def manifest_of_another_version(patient: Patient) -> str:
    version = patient.newest.version - 1
    path = layout.manifest_path(patient.shard, version)
    patient.store.put(path, patient.store.get(layout.manifest_path(patient.shard, version - 1)))
    return path


@damage("error", "manifest.gap")
def missing_manifest(patient: Patient) -> str:
    path = layout.manifest_path(patient.shard, patient.newest.version - 1)
    patient.store.delete([path])
    return path


@damage("error", "manifest.missing")
def no_manifest_at_all(patient: Patient) -> str:
    directory = layout.manifest_directory(patient.shard)
    patient.store.delete([one.path for one in patient.store.list(directory)])
    # Without its list of generations nothing else is to be said of the shard, but what is published stays.
    patient.change(lambda details: replace(details, inline_snapshots=None, snapshot_ts_millis=0))
    return directory


@damage("error", "manifest.backwards")
def replay_goes_back(patient: Patient) -> str:
    before = patient.newest.replay_after_wal_entry_position
    path = patient.publish(replay_after_wal_entry_position=before - 1)
    newest = patient.newest
    # And forward again, so that only the order is wrong.
    patient.publish(replay_after_wal_entry_position=before)
    assert patient.newest.version == newest.version + 1
    return path


@damage("warning", "manifest.hint")
def stale_hint(patient: Patient) -> str:
    path = layout.version_hint_path(patient.shard)
    patient.store.put(path, b'{"version": 1}')
    return path


@damage("warning", "manifest.hint")
def hint_beyond_the_end(patient: Patient) -> str:
    path = layout.version_hint_path(patient.shard)
    patient.store.put(path, b'{"version": 999}')
    return path


@damage("error", "manifest.lost")
def newest_manifest_deleted(patient: Patient) -> str:
    path = layout.manifest_path(patient.shard, patient.newest.version)
    patient.store.delete([path])
    return path


@damage("warning", "manifest.hint")
def torn_hint(patient: Patient) -> str:
    path = layout.version_hint_path(patient.shard)
    patient.store.put(path, b'{"ver')
    return path


@damage("warning", "manifest.hint")
def no_hint(patient: Patient) -> str:
    path = layout.version_hint_path(patient.shard)
    patient.store.delete([path])
    return path


@damage("error", "wal.gap")
def missing_entry(patient: Patient) -> str:
    path = patient.wal_path(patient.tail[-2])
    patient.store.delete([path])
    return path


@damage("error", "wal.gap")
def entry_at_the_end_of_all_positions(patient: Patient) -> str:
    """What is missing before it is more than can be counted."""
    epoch = patient.newest.writer_epoch
    patient.store.put(patient.wal_path(2**64 - 1), patient.entry(epoch, people(3)))
    return patient.wal_path(patient.tail[-2] + 1)


@damage("error", "wal.lost")
def missing_last_entry(patient: Patient) -> str:
    last = patient.tail[-1]
    patient.publish(wal_entry_position_last_seen=last)
    path = patient.wal_path(last)
    patient.store.delete([path])
    return path


@damage("error", "wal.unreadable")
def flipped_entry(patient: Patient) -> str:
    path = patient.wal_path(patient.tail[-1])
    patient.flip(path)
    return path


@damage("warning", "wal.unreadable")
def flipped_covered_entry(patient: Patient) -> str:
    path = patient.wal_path(2)
    patient.flip(path)
    return path


@damage("error", "wal.unreadable")
def truncated_entry(patient: Patient) -> str:
    path = patient.wal_path(patient.tail[0])
    patient.store.put(path, bytes(patient.store.get(path))[:-30])
    return path


@damage("error", "wal.doubled")
def two_entries_at_one_position(patient: Patient) -> str:
    position = patient.tail[-1]
    path = layout.wal_path(patient.shard, position, ".lance")
    patient.store.put(path, patient.store.get(patient.wal_path(position)))
    return path


@damage("error", "wal.place")
def entry_in_the_place_of_another(patient: Patient) -> str:
    path = patient.wal_path(patient.tail[-1])
    patient.store.put(path, patient.store.get(patient.wal_path(patient.tail[-2])))
    return path


@damage("error", "wal.copied")
def entry_without_a_place_in_that_of_another(patient: Patient) -> str:
    entry = patient.entry(patient.newest.writer_epoch, people(3))
    for position in patient.tail[-2:]:
        patient.store.put(patient.wal_path(position), entry)
    return patient.wal_path(patient.tail[-1])


@damage("error", "wal.epoch")
def entry_of_an_older_epoch(patient: Patient) -> str:
    path = patient.wal_path(patient.tail[-1] + 1)
    patient.store.put(path, patient.entry(patient.newest.writer_epoch - 1, people(3)))
    return path


@damage("error", "wal.epoch")
def entry_of_an_epoch_nobody_claimed(patient: Patient) -> str:
    path = patient.wal_path(patient.tail[-1] + 1)
    patient.store.put(path, patient.entry(patient.newest.writer_epoch + 1, people(3)))
    return path


@damage("error", "wal.claim")
def entry_of_another_claim_with_the_same_epoch(patient: Patient) -> str:
    path = patient.wal_path(patient.tail[-1] + 1)
    patient.store.put(path, patient.entry(patient.newest.writer_epoch, people(3), claim="f" * 32))
    return path


@damage("error", "wal.fence")
def fence_in_the_middle_of_an_epoch(patient: Patient) -> str:
    path = patient.wal_path(patient.tail[-1] + 1)
    patient.store.put(path, patient.entry(patient.newest.writer_epoch, fence=True))
    return path


@damage("error", "wal.rows")
def entry_with_other_columns(patient: Patient) -> str:
    path = patient.wal_path(patient.tail[-1] + 1)
    schema = wal_schema(pa.schema([("id", pa.string()), ("name", pa.string())]))
    batch = pa.RecordBatch.from_pylist([{"id": "no number", "name": "x", "_tombstone": False}], schema)
    header = WalEntryHeader(patient.newest.writer_epoch, 4, wal_entry.new_write_id())
    patient.store.put(path, [bytes(part) for part in wal_entry.encode(header, schema, [batch])])
    return path


@damage("error", "generation.order")
def generations_out_of_order(patient: Patient) -> str:
    return patient.publish(flushed_generations=patient.newest.flushed_generations[::-1])


@damage("error", "generation.name")
def generation_in_the_directory_of_another(patient: Patient) -> str:
    listed = patient.newest.flushed_generations
    name = listed[0].path.replace("_gen_1", "_gen_7")
    uri = f"{patient.store.uri}/{layout.shard_directory(patient.shard)}"
    Path(f"{uri}/{listed[0].path}").rename(f"{uri}/{name}")
    directory = layout.generation_path(patient.shard, name)
    _catalog(patient, lambda catalog: replace(catalog, directory=directory), directory)
    return patient.publish(flushed_generations=(replace(listed[0], path=name), *listed[1:]))


@damage("error", "generation.number")
def generation_that_is_not_due_yet(patient: Patient) -> str:
    early = replace(patient.generation(3), generation=9, path="0badcafe_gen_9")
    directory = layout.generation_path(patient.shard, early.path)
    shutil.copytree(f"{patient.store.uri}/{patient.generation_path(3)}", f"{patient.store.uri}/{directory}")
    _catalog(patient, lambda catalog: replace(catalog, directory=directory), directory)
    return patient.publish(flushed_generations=(*patient.newest.flushed_generations, early))


@damage("error", "generation.merged")
def merged_though_never_flushed(patient: Patient) -> str:
    patient.change(
        lambda details: replace(
            details,
            merged_generations=(
                MergedGeneration(patient.shard, 9),
                MergedGeneration(guard_id(patient.shard), 1),
            ),
        )
    )
    return layout.manifest_path(patient.shard, patient.newest.version)


@damage("error", "generation.lost")
def generation_that_is_not_listed(patient: Patient) -> str:
    listed = patient.newest.flushed_generations
    shutil.rmtree(f"{patient.store.uri}/{patient.generation_path(2)}")
    return patient.publish(flushed_generations=(listed[0], listed[2]))


@damage("error", "generation.lost")
def more_generations_than_can_be(patient: Patient) -> str:
    return patient.publish(current_generation=2**63)


@damage("warning", "generation.orphan")
def generation_that_a_crash_left(patient: Patient) -> str:
    path = layout.generation_path(patient.shard, "0badcafe_gen_2")
    patient.store.put(f"{path}/bloom_filter.bin", b"x")
    return path


@damage("error", "generation.unreadable")
def missing_generation(patient: Patient) -> str:
    path = patient.generation_path(2)
    shutil.rmtree(f"{patient.store.uri}/{path}")
    return path


@damage("error", "generation.unreadable")
def truncated_data_file(patient: Patient) -> str:
    path = patient.generation_path(2)
    (file,) = [one.path for one in patient.store.list(f"{path}/data")]
    patient.store.put(file, bytes(patient.store.get(file))[:-100])
    return path


@damage("error", "generation.rows")
def manifest_with_another_row_count(patient: Patient) -> str:
    listed = patient.newest.flushed_generations
    patient.publish(flushed_generations=(*listed[:2], replace(listed[2], physical_rows=11)))
    return patient.generation_path(3)


@damage("error", "generation.newest")
def two_rows_of_one_key(patient: Patient) -> str:
    """As a writer leaves them that forgets the deletion vector; index and filter fit the rows."""
    rows = patient.rows_of(2)
    rows = pa.concat_tables([rows.slice(0, 9), rows.slice(0, 1)])
    path = patient.rewrite_rows(2, rows)
    _write_index(patient, 2, rows)
    return path


@damage("error", "generation.nulls")
def key_that_is_null(patient: Patient) -> str:
    rows = patient.rows_of(2)
    patient.store.delete([f"{patient.generation_path(2)}/{layout.CATALOG}"])
    ids = pa.array([None, *rows.column("id").to_pylist()[1:]], pa.int64())
    return patient.rewrite_rows(2, rows.set_column(0, "id", ids))


def _write_index(patient: Patient, number: int, rows: pa.Table) -> None:
    index = pk_index.build(keys.encode_keys([rows.column("id").combine_chunks()]))
    name = patient.generation(number).path
    for path, batch in (
        (layout.page_data_path(patient.shard, name), index.page_data),
        (layout.page_lookup_path(patient.shard, name), index.page_lookup),
    ):
        patient.rewrite(path, lambda _, batch=batch: pa.Table.from_batches([batch]))  # type: ignore[misc]


@damage("error", "generation.checksum")
def flipped_value(patient: Patient) -> str:
    """One that decodes, in a column without bounds, so that nothing disagrees with it."""
    (file,) = [one.path for one in patient.store.list(f"{patient.generation_path(2)}/data")]
    data = bytes(patient.store.get(file))
    rows = patient.rows_of(2)
    for at in range(len(data)):
        patient.store.put(file, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        try:
            changed = patient.rows_of(2)
        except BaseException:
            continue
        if changed.select(["id", "_tombstone"]) == rows.select(["id", "_tombstone"]) and changed != rows:
            _catalog(patient, lambda catalog: replace(catalog, columns={}))
            return file
    raise AssertionError("every flipped bit breaks something")


@damage("error", "generation.checksum")
def lost_transaction(patient: Patient) -> str:
    (file,) = [one.path for one in patient.store.list(f"{patient.generation_path(2)}/_transactions")]
    patient.store.delete([file])
    return file


@damage("error", "key_index.unreadable")
def no_key_index(patient: Patient) -> str:
    path = layout.page_data_path(patient.shard, patient.generation(2).path)
    patient.store.delete([path])
    return path


@damage("error", "key_index.order")
def unsorted_key_index(patient: Patient) -> str:
    path = layout.page_data_path(patient.shard, patient.generation(2).path)
    return patient.rewrite(path, lambda table: table.take(list(range(table.num_rows))[::-1]))


@damage("error", "key_index.keys")
def key_index_of_other_keys(patient: Patient) -> str:
    path = layout.page_data_path(patient.shard, patient.generation(2).path)
    other = layout.page_data_path(patient.shard, patient.generation(3).path)
    patient.store.put(path, patient.store.get(other))
    return path


@damage("error", "key_index.keys")
def key_index_without_a_key(patient: Patient) -> str:
    path = layout.page_data_path(patient.shard, patient.generation(2).path)
    return patient.rewrite(path, lambda table: table.slice(1))


@damage("error", "key_index.rows")
def key_index_with_keys_at_other_rows(patient: Patient) -> str:
    path = layout.page_data_path(patient.shard, patient.generation(2).path)
    ids = pa.array(list(range(10))[::-1], pa.uint64())
    return patient.rewrite(path, lambda table: table.set_column(1, table.schema.field("ids"), ids))


@damage("error", "key_index.pages")
def key_index_with_a_wrong_page(patient: Patient) -> str:
    path = layout.page_lookup_path(patient.shard, patient.generation(2).path)
    least = pa.array([6], pa.int64())
    return patient.rewrite(path, lambda table: table.set_column(0, table.schema.field("min"), least))


@damage("error", "bloom_filter.keys")
def bloom_filter_of_nothing(patient: Patient) -> str:
    path = layout.bloom_filter_path(patient.shard, patient.generation(2).path)
    patient.store.put(path, bytes(len(bytes(patient.store.get(path)))))
    return path


@damage("error", "bloom_filter.unreadable")
def truncated_bloom_filter(patient: Patient) -> str:
    path = layout.bloom_filter_path(patient.shard, patient.generation(2).path)
    patient.store.put(path, bytes(patient.store.get(path))[:-1])
    return path


@damage("warning", "bloom_filter.missing")
def no_bloom_filter(patient: Patient) -> str:
    path = layout.bloom_filter_path(patient.shard, patient.generation(2).path)
    patient.store.delete([path])
    return path


def _catalog(
    patient: Patient,
    change: Callable[[GenerationCatalog], GenerationCatalog],
    directory: str | None = None,
) -> str:
    path = f"{directory or patient.generation_path(2)}/{layout.CATALOG}"
    catalog = generation_catalog.decode(patient.store.get(path), where=path)
    patient.store.put(path, generation_catalog.encode(change(catalog)))
    return path


@damage("error", "catalog.unreadable")
def flipped_catalog(patient: Patient) -> str:
    path = f"{patient.generation_path(2)}/{layout.CATALOG}"
    patient.flip(path, 40)
    return path


@damage("warning", "catalog.missing")
def no_catalog(patient: Patient) -> str:
    path = f"{patient.generation_path(2)}/{layout.CATALOG}"
    patient.store.delete([path])
    return path


@damage("error", "catalog.directory")
def generation_in_the_place_of_one_with_the_same_keys(patient: Patient) -> str:
    """Its rows, key index and bloom filter agree, and are older than they seem."""
    with weir.open(patient.store.uri, fsync=False).writer() as writer:
        writer.upsert(people(1, 2))
        writer.flush()
        writer.upsert(people(1, 2, name="y"))
    older, path = patient.generation_path(4), patient.generation_path(5)
    shutil.rmtree(f"{patient.store.uri}/{path}")
    shutil.copytree(f"{patient.store.uri}/{older}", f"{patient.store.uri}/{path}")
    return path


@damage("error", "catalog.rows")
def catalog_of_fewer_rows(patient: Patient) -> str:
    return _catalog(patient, lambda catalog: replace(catalog, rows=9))


@damage("error", "catalog.bounds")
def catalog_with_bounds_that_are_too_narrow(patient: Patient) -> str:
    def narrowed(catalog: GenerationCatalog) -> GenerationCatalog:
        ids = replace(catalog.columns["id"], minimum=pa.scalar(7), maximum=pa.scalar(9))
        return replace(catalog, columns={**catalog.columns, "id": ids})

    return _catalog(patient, narrowed)


@damage("error", "catalog.nulls")
def catalog_with_nulls_that_are_none(patient: Patient) -> str:
    def with_nulls(catalog: GenerationCatalog) -> GenerationCatalog:
        name = replace(catalog.columns["name"], nulls=3)
        return replace(catalog, columns={**catalog.columns, "name": name})

    return _catalog(patient, with_nulls)


@damage("warning", "shard.spec")
def shard_of_an_unknown_spec(patient: Patient) -> str:
    return patient.publish(shard_spec_id=7)


@damage("error", "shard.values")
def shard_value_of_another_type(patient: Patient) -> str:
    (field,) = patient.newest.shard_fields
    return patient.publish(shard_fields=(replace(field, value=b"long text"),))


@damage("warning", "shard.unknown_object")
def foreign_object(patient: Patient) -> str:
    path = f"{layout.shard_directory(patient.shard)}/notes.txt"
    patient.store.put(path, b"x")
    return path


@damage("warning", "shard.name")
def directory_of_no_shard(patient: Patient) -> str:
    patient.store.put("_mem_wal/not-a-shard/x", b"x")
    return "_mem_wal/not-a-shard"


@damage("error", "lease.unreadable")
def flipped_lease(patient: Patient) -> str:
    path = layout.lease_path(patient.shard)
    patient.flip(path)
    return path


@damage("error", "lease.shard")
def lease_of_another_shard(patient: Patient) -> str:
    path = layout.lease_path(patient.shard)
    held = lease.decode(patient.store.get(path), where=path)
    patient.store.put(path, lease.encode(replace(held, shard_id=uuid4())))
    return path


@damage("error", "lease.times")
def lease_that_ends_before_it_began(patient: Patient) -> str:
    path = layout.lease_path(patient.shard)
    held = lease.decode(patient.store.get(path), where=path)
    patient.store.put(path, lease.encode(replace(held, expires_at=held.acquired_at - timedelta(1))))
    return path


@damage("error", "snapshot.unreadable")
def broken_snapshot(patient: Patient) -> str:
    patient.change(lambda details: replace(details, inline_snapshots=b"no Lance file"))
    return patient.details_path


@damage("error", "snapshot.num_shards")
def snapshot_of_another_size(patient: Patient) -> str:
    patient.change(lambda details: replace(details, num_shards=4))
    return patient.details_path


@damage("warning", "snapshot.missing")
def snapshot_without_its_file(patient: Patient) -> str:
    directory = uuid4()
    patient.change(
        lambda details: replace(
            details,
            inline_snapshots=None,
            writer_config_defaults={
                **details.writer_config_defaults,
                "weir.shard_snapshot": f"{details.snapshot_ts_millis} {'0' * 16} {directory}",
            },
        )
    )
    return f"_indices/{directory}/index.lance"


def _publish_snapshot(patient: Patient, *manifests: ShardManifest) -> None:
    patient.change(lambda details: replace(details, inline_snapshots=None, snapshot_ts_millis=0))
    publish_shards(patient.base, manifests)


@damage("error", "snapshot.ahead")
def snapshot_of_the_future(patient: Patient) -> str:
    _publish_snapshot(patient, replace(patient.newest, version=99))
    return layout.manifest_path(patient.shard, 99)


@damage("error", "snapshot.differs")
def snapshot_with_another_epoch(patient: Patient) -> str:
    _publish_snapshot(patient, replace(patient.newest, writer_epoch=99))
    return layout.manifest_path(patient.shard, patient.newest.version)


@damage("error", "snapshot.unknown_shard")
def snapshot_of_an_unknown_shard(patient: Patient) -> str:
    _publish_snapshot(patient, patient.newest, ShardManifest(uuid4(), 1))
    return patient.details_path


@damage("error", "details.merged_generations")
def guard_above_the_progress(patient: Patient) -> str:
    patient.change(
        lambda details: replace(
            details,
            merged_generations=(
                MergedGeneration(patient.shard, 1),
                MergedGeneration(guard_id(patient.shard), 2),
            ),
        )
    )
    return patient.details_path


@damage("warning", "details.merged_generations")
def progress_of_an_unknown_shard(patient: Patient) -> str:
    stranger = MergedGeneration(uuid4(), 1)
    patient.change(
        lambda details: replace(details, merged_generations=(*details.merged_generations, stranger))
    )
    return patient.details_path


@damage("warning", "details.shard_specs")
def shard_field_of_a_column_that_is_gone(patient: Patient) -> str:
    spec = ShardSpec(9, (ShardFieldSpec("gone", (77,), "identity", None, "int64"),))
    patient.change(lambda details: replace(details, shard_specs=(spec, *details.shard_specs)))
    return patient.details_path


@damage("warning", "details.maintained_indexes")
def maintained_index_that_does_not_exist(patient: Patient) -> str:
    patient.change(lambda details: replace(details, maintained_indexes=("no_idx",)))
    return patient.details_path


@damage("error", "details.writer_defaults")
def writer_default_that_cannot_be(patient: Patient) -> str:
    patient.change(
        lambda details: replace(
            details, writer_config_defaults={**details.writer_config_defaults, "max_memtable_rows": "many"}
        )
    )
    return patient.details_path


@damage("error", "marks.unreadable")
def flipped_marks(patient: Patient) -> str:
    patient.store.put(MARKS, garbage_marks.encode(Marks({}, "ab")))
    patient.flip(MARKS, 20)
    return MARKS


@damage("error", "marks.unknown_shard")
def marks_of_an_unknown_shard(patient: Patient) -> str:
    marks = Marks({uuid4(): ShardMarks(wal=(Step(1, NOW),))}, "ab")
    patient.store.put(MARKS, garbage_marks.encode(marks))
    return MARKS


def _mark(patient: Patient, marks: ShardMarks) -> None:
    patient.store.put(MARKS, garbage_marks.encode(Marks({patient.shard: marks}, "ab")))


@damage("error", "marks.needed")
def marked_though_listed(patient: Patient) -> str:
    _mark(patient, ShardMarks(directories={patient.generation(2).path: NOW}))
    return patient.generation_path(2)


@damage("error", "marks.needed")
def log_marked_beyond_what_is_covered(patient: Patient) -> str:
    _mark(patient, ShardMarks(wal=(Step(patient.tail[-1], NOW),)))
    return patient.wal_path(patient.tail[-1])


@damage("error", "marks.needed")
def newest_manifest_marked(patient: Patient) -> str:
    _mark(patient, ShardMarks(manifests=(Step(patient.newest.version, NOW),)))
    return layout.manifest_path(patient.shard, patient.newest.version)


def _pin(patient: Patient) -> str:
    token = weir.open(patient.store.uri, fsync=False).snapshot()
    return snapshot_pin.pin_path(str(token.pin))


@damage("error", "pin.unreadable")
def flipped_pin(patient: Patient) -> str:
    path = _pin(patient)
    patient.flip(path)
    return path


@damage("error", "pin.name")
def pin_under_another_name(patient: Patient) -> str:
    path = snapshot_pin.pin_path("0" * 32)
    pinned = _pin(patient)
    patient.store.put(path, patient.store.get(pinned))
    return path


@damage("error", "token.table")
def pin_of_another_table(patient: Patient) -> str:
    path = _pin(patient)
    pin = snapshot_pin.decode(patient.store.get(path), where=path)
    patient.store.put(path, snapshot_pin.encode(replace(pin, token=replace(pin.token, table="another"))))
    return path


@damage("error", "token.expired")
def pinned_version_is_gone(patient: Patient) -> str:
    path = _pin(patient)
    pin = snapshot_pin.decode(patient.store.get(path), where=path)
    patient.store.put(path, snapshot_pin.encode(replace(pin, token=replace(pin.token, base_version=999))))
    return path


@damage("error", "token.expired")
def pinned_manifest_is_gone(patient: Patient) -> str:
    path = _pin(patient)
    pin = snapshot_pin.decode(patient.store.get(path), where=path)
    cuts = tuple(replace(cut, manifest_version=999) for cut in pin.token.shards)
    patient.store.put(path, snapshot_pin.encode(replace(pin, token=replace(pin.token, shards=cuts))))
    return path


@damage("error", "token.expired")
def pinned_entry_is_gone(patient: Patient) -> str:
    """One in the middle, which a flush has covered since."""
    with weir.open(patient.store.uri, fsync=False).writer(flush_on_close=False) as writer:
        writer.upsert(people(3))
        path = _pin(patient)
        gone = patient.tail[1]
        writer.flush()
    patient.store.delete([patient.wal_path(gone)])
    return path


@damage("error", "token.expired")
def pinned_generation_is_gone(patient: Patient) -> str:
    """The newest manifest does not list it any more, since it was merged after the pin."""
    path = _pin(patient)
    directory = patient.generation_path(2)
    weir.open(patient.store.uri, fsync=False).maintenance.merge()
    patient.publish(flushed_generations=())
    for one in patient.store.list(layout.shard_directory(patient.shard)):
        if one.path.startswith(directory):
            patient.store.delete([one.path])
    marked = {
        name: NOW
        for name in patient.store.list_directories(layout.shard_directory(patient.shard))
        if "_gen_" in name
    }
    _mark(patient, ShardMarks(directories=marked))
    return path


@damage("error", "consumer.unreadable")
def flipped_consumer(patient: Patient) -> str:
    list(weir.open(patient.store.uri, fsync=False).changes("earliest", consumer="billing"))
    path = feed_consumer.consumer_path("billing")
    patient.flip(path)
    return path


@damage("error", "consumer.name")
def consumer_under_another_name(patient: Patient) -> str:
    list(weir.open(patient.store.uri, fsync=False).changes("earliest", consumer="billing"))
    path = feed_consumer.consumer_path("mailing")
    patient.store.put(path, patient.store.get(feed_consumer.consumer_path("billing")))
    return path


@damage("error", "base.keys")
def key_twice_in_the_base_table(patient: Patient) -> str:
    lance.write_dataset(
        pa.table({"id": [1], "name": ["again"]}, schema=patient.base.schema), patient.store.uri, mode="append"
    )
    return ""


@damage("error", "base.torn")
def newest_version_is_torn(patient: Patient) -> str:
    """By Lance alone, which syncs nothing."""
    rows = pa.table({"id": [77], "name": ["new"]}, schema=patient.base.schema)
    lance.write_dataset(rows, patient.store.uri, mode="append")
    path = manifest_path(patient.base.version + 1, counts_down=True)
    patient.store.put(path, b"")
    return path


@damage("warning", "base.torn_history")
def older_version_is_torn(patient: Patient) -> str:
    path = manifest_path(patient.base.version - 1, counts_down=True)
    patient.store.put(path, b"")
    return path


@damage("warning", "base.hint")
def newest_version_is_gone(patient: Patient) -> str:
    path = "_versions/latest_version_hint.json"
    patient.store.put(path, b'{"version":%d}' % (patient.base.version + 1))
    return path


def _forget_checksums(patient: Patient) -> None:
    """Leave it to the look into an index to find its damage, as on an object store."""
    patient.store.delete([one.path for one in patient.store.list(CHECKSUMS)])


def _segment(patient: Patient) -> str:
    """Return the directory of the only segment of the key index."""
    ((_, uuid),) = [
        (index.name, segment.uuid)
        for index in patient.base.dataset.describe_indices()
        for segment in (index.segments if index.field_names else ())
        if segment.fragment_ids
    ]
    return f"_indices/{uuid}"


@damage("error", "base_index.files")
def lost_index(patient: Patient) -> str:
    path = _segment(patient)
    patient.store.delete([one.path for one in patient.store.list(path)])
    return path


@damage("error", "base_index.files")
def truncated_index(patient: Patient) -> str:
    _forget_checksums(patient)
    path = f"{_segment(patient)}/page_lookup.lance"
    patient.store.put(path, bytes(patient.store.get(path))[:-1])
    return _segment(patient)


@damage("error", "base_index.unreadable")
def zeroed_index(patient: Patient) -> str:
    _forget_checksums(patient)
    path = f"{_segment(patient)}/page_data.lance"
    patient.store.put(path, bytes(len(bytes(patient.store.get(path)))))
    return _segment(patient)


def _abort(patient: Patient, path: str) -> str:
    """Damage a file so that the library does not fail over it, but ends the process."""
    data = bytes(patient.store.get(path))
    assert b"null_count" in data
    patient.store.put(path, data.replace(b"null_count", b"null\0count"))
    return path


@damage("error", "base_index.unreadable")
def index_over_which_the_library_aborts(patient: Patient) -> str:
    _forget_checksums(patient)
    _abort(patient, f"{_segment(patient)}/page_lookup.lance")
    return _segment(patient)


@damage("error", "generation.checksum")
def key_index_over_which_the_library_aborts(patient: Patient) -> str:
    return _abort(patient, layout.page_lookup_path(patient.shard, patient.generation(3).path))


@damage("error", "generation.unreadable")
def key_index_without_a_catalog_over_which_the_library_aborts(patient: Patient) -> str:
    key_index_over_which_the_library_aborts(patient)
    patient.store.delete([f"{patient.generation_path(3)}/{layout.CATALOG}"])
    return patient.generation_path(3)


def _change_index(patient: Patient, name: str, change: Callable[[bytearray], None]) -> str:
    _forget_checksums(patient)
    path = f"{_segment(patient)}/{name}"
    data = bytearray(patient.store.get(path))
    change(data)
    patient.store.put(path, bytes(data))
    return _segment(patient)


@damage("error", "base_index.pages")
def index_out_of_order(patient: Patient) -> str:
    """Two of the values, which are stored as they are, have changed places."""

    def swap(data: bytearray) -> None:
        at = data.index(b"".join(number.to_bytes(8, "little") for number in range(10)))
        data[at + 8 : at + 24] = data[at + 16 : at + 24] + data[at + 8 : at + 16]

    return _change_index(patient, "page_data.lance", swap)


@damage("error", "base_index.rows")
def index_of_another_value(patient: Patient) -> str:
    """Its order is right, and a lookup of the key 8 finds nothing."""

    def replaced(data: bytearray) -> None:
        at = data.index(b"".join(number.to_bytes(8, "little") for number in range(10)))
        data[at + 64 : at + 72] = (7).to_bytes(8, "little")

    return _change_index(patient, "page_data.lance", replaced)


@damage("error", "base.checksum")
def a_byte_that_no_column_has(patient: Patient) -> str:
    (file,) = [one.path for one in patient.store.list("data")]
    data = bytearray(patient.store.get(file))
    # Lance fills up with it between two buffers.
    data[data.index(b"H" * 24) + 20] ^= 1
    patient.store.put(file, bytes(data))
    return file


@damage("warning", "base.checksums")
def damaged_checksums_of_base_files(patient: Patient) -> str:
    path = min(one.path for one in patient.store.list(CHECKSUMS))
    patient.store.put(path, bytes(patient.store.get(path))[:-9])
    return path


@damage("error", "base.unreadable")
def damaged_base_file(patient: Patient) -> str:
    (file,) = [one.path for one in patient.store.list("data")]
    patient.store.delete([one.path for one in patient.store.list(CHECKSUMS)])
    data = bytes(patient.store.get(file))
    patient.store.put(file, data[:-100] + b"\xff" * 96 + data[-4:])
    return ""


@damage("error", "base.torn")
def truncated_base_file(patient: Patient) -> str:
    (file,) = [one.path for one in patient.store.list("data")]
    patient.store.put(file, bytes(patient.store.get(file))[:-100])
    return file


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("severity", "check", "do"), DAMAGES, ids=[do.__name__ for _, _, do in DAMAGES])
def test_a_damage_is_found_and_nothing_else(patient: Patient, severity: str, check: str, do: Damage) -> None:
    path = do(patient)
    report = verify(patient.store.uri)
    assert found(report) == [(severity, check)], "\n".join(map(str, report.findings))
    (finding,) = report.findings
    # Of an object that was swapped the file is named that holds it.
    named = f"{patient.store.uri}/{path}".rstrip("/")
    assert finding.where == named or finding.where == patient.store.location_of(path)
    assert finding.where in str(finding)
    assert "\n" not in str(finding)
    assert report.passed == (severity == "warning")
    assert report.to_dict()["findings"] == [finding.to_dict()]


def test_every_check_is_shown_by_a_damage() -> None:
    """A check that no damage provokes is not known to work."""
    source = Path(weir.maintenance.verify.__file__).parent
    text = "".join(path.read_text() for path in sorted((source / "verification").glob("*.py")))
    text += (source / "verify.py").read_text()
    named = set(
        re.findall(
            r"""["']((?:manifest|wal|generation|key_index|bloom_filter|catalog|shard|lease|snapshot"""
            r"""|details|marks|pin|consumer|token|base|base_index)\.[a-z_]+)["']""",
            text,
        )
    )
    shown = {check for _, check, _ in DAMAGES} | {
        "wal.shard",
        "generation.shard",
        "shard.twin",
        "shard.shared_keys",
    }
    # The library's rows of two columns of one id are in tests/test_reused_field_ids.py.
    shown |= {"details.index_catchup", "generation.columns"}
    assert named == shown


def test_a_list_of_indexes_that_the_library_cannot_read(patient: Patient) -> None:
    path = patient.details_path
    data = bytes(patient.store.get(path))
    patient.store.put(path, data.replace(b"page_data.lance", b"\xffage_data.lance"))
    report = verify(patient.store.uri)
    assert ("error", "base.unreadable") in found(report)
    assert f"{patient.store.uri}/{path}" in {one.where for one in report.findings}
    with pytest.raises(CorruptionError, match="indexes"):
        list_indexes(patient.base.dataset)
    table = weir.open(patient.store.uri)
    for use in (
        table.indexes.list,
        lambda: table.indexes.create("name", "BTREE"),
        lambda: table.indexes.drop("id_idx"),
    ):
        with pytest.raises(CorruptionError, match="indexes"):
            use()


def test_entries_that_have_changed_places(patient: Patient) -> None:
    """Both whole and of one epoch: the older write would count as the newer one."""
    paths = [patient.wal_path(position) for position in patient.tail[-2:]]
    first, second = (patient.store.get(path) for path in paths)
    patient.store.put(paths[0], second)
    patient.store.put(paths[1], first)
    report = verify(patient.store.uri)
    assert [(one.check, one.where) for one in report.findings] == [
        ("wal.place", f"{patient.store.uri}/{path}") for path in sorted(paths)
    ]
    with pytest.raises(CorruptionError, match="appended at position"):
        weir.open(patient.store.uri, fsync=False).get([1])
    with pytest.raises(CorruptionError, match="appended at position"):
        weir.open(patient.store.uri, fsync=False).writer(takeover=True).upsert(people(1))


def test_rows_that_belong_to_another_shard(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), fsync=False)
    with table.writer(flush_on_close=False) as writer:
        (ones, others) = writer.upsert(people(*range(20))).positions
        writer.flush()
        writer.upsert(people(*range(20)))
    store = open_store(table.uri, fsync=False)
    patient, other = Patient(store, ones), Patient(store, others)
    # The rows of the log of one shard in that of the other, and of a generation too.
    last = other.tail[-1]
    data = wal_entry.decode(store.get(other.wal_path(last)), where="here")
    path = patient.wal_path(patient.tail[-1] + 1)
    rows = [{"id": row["id"], "name": row["name"]} for batch in data.batches for row in batch.to_pylist()]
    store.put(path, patient.entry(patient.newest.writer_epoch, rows))
    assert [(one.check, one.where) for one in verify(table.uri).findings] == [
        ("wal.shard", f"{table.uri}/{path}")
    ]
    store.delete([path])
    listed = (replace(other.generation(1), path="0a1b2c3d_gen_1"),)
    source = f"{table.uri}/{other.generation_path(1)}"
    directory = layout.generation_path(ones, "0a1b2c3d_gen_1")
    shutil.copytree(source, f"{table.uri}/{directory}")
    _catalog(patient, lambda catalog: replace(catalog, directory=directory), directory)
    shutil.rmtree(f"{table.uri}/{patient.generation_path(1)}")
    patient.publish(flushed_generations=listed)
    assert found(verify(table.uri)) == [("error", "generation.shard")]


def test_two_shards_with_the_same_values(patient: Patient) -> None:
    twin = uuid4()
    manifest = ShardManifest(twin, 1, shard_spec_id=1, shard_fields=patient.newest.shard_fields)
    Patient(patient.store, twin).put_manifest(manifest)
    report = verify(patient.store.uri)
    assert found(report) == [("error", "shard.twin")]
    (finding,) = report.findings
    assert {str(twin), str(patient.shard)} == set(
        re.findall(r"[0-9a-f]{8}(?:-[0-9a-f]{4,12}){4}", str(finding))
    )


@pytest.mark.parametrize(
    ("severity", "change"),
    [
        ("error", {"index_catchup": "ahead"}),
        ("warning", {"index_catchup": "unknown"}),
    ],
)
def test_details_that_the_library_does_not_let_anybody_write(
    patient: Patient, severity: str, change: dict[str, str]
) -> None:
    """It leaves out of every commit what index catch-up cannot be; another writer may not."""
    base = patient.base
    name, generation = ("id_idx", 2) if change["index_catchup"] == "ahead" else ("no_idx", 1)
    catchup = IndexCatchup(name, (MergedGeneration(patient.shard, generation),))
    details = replace(base.details, index_catchup=(catchup,))
    odd = BaseTable(patient.store, base.dataset, details, base.primary_key, base.index_id, b"")
    findings = check_whole(odd).findings
    assert [(one.severity.value, one.check) for one in findings] == [(severity, "details.index_catchup")]


# --- How it looks ---------------------------------------------------------------------------------


class _PicklingRunner:
    """Sends tasks and results through pickle, as Spark does."""

    def __init__(self) -> None:
        self.largest = 0

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        for task in tasks:
            data = pickle.dumps((function, task))
            self.largest = max(self.largest, len(data))
            sent, own = pickle.loads(data)
            yield pickle.loads(pickle.dumps(sent(own)))


def test_tasks_are_small_and_can_be_sent_elsewhere(patient: Patient) -> None:
    runner = _PicklingRunner()
    flipped_entry(patient)
    report = weir.open(patient.store.uri, fsync=False).maintenance.verify(runner=runner)
    assert found(report) == [("error", "wal.unreadable")]
    assert runner.largest < 8_000


def test_what_does_not_stay_is_not_reported(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Repaired between two looks: it was only under way."""
    path = flipped_entry(patient)
    clock = SimpleNamespace(sleep=lambda _: patient.flip(path))
    monkeypatch.setattr("weir.maintenance.verify.time", clock)
    assert verify(patient.store.uri).findings == ()


def test_nothing_is_written_and_round_trips_are_bounded(patient: Patient) -> None:
    store = CountingStore(patient.store)
    base = BaseTable.open(store)
    before = {one.path: one.version for one in patient.store.list("")}
    store.reset()
    report = weir.Table(store, base).maintenance.verify(base_rows=False)
    counts = dict(store.counts)
    assert report.findings == ()
    manifests = patient.newest.version
    versions = len(base.dataset.versions())
    # One look: every manifest, version of the base table, entry, bloom filter and catalog once; hint, lease,
    # marks, the table's manifest and its hint, a probe for a newer one and a look back. Snapshots, tags,
    # consumers, the shard and the segments of indexes are listed once each, and the files of the base table,
    # and its versions twice. A snapshot is taken beside it, for keys in two shards, and asks for the lease
    # again.
    assert counts.pop("get") <= versions + manifests + report.entries + 2 * report.generations + 16
    # For the checksums of their files, each generation is listed, and all of it read.
    segments = sum(len(one.segments) for one in base.dataset.describe_indices() if one.field_names)
    assert counts.pop("list") == 9 + report.generations + segments
    assert counts.pop("get_range") == 7 * report.generations
    assert counts.pop("list_directories") == 3
    assert counts.pop("head", 0) <= 1
    assert counts == {}
    assert {one.path: one.version for one in patient.store.list("")} == before


@pytest.mark.long
def test_on_s3(s3_endpoint: S3Endpoint) -> None:
    uri, options = s3_endpoint.new_uri(), s3_endpoint.options
    table = weir.create(uri, SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), storage_options=options)
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(people(*range(20)))
        writer.flush()
        (shard, _) = writer.upsert(people(*range(20))).positions
    assert table.maintenance.verify().findings == ()
    store = open_store(uri, options)
    path = Patient(store, shard).generation_path(1)
    store.delete([f"{path}/bloom_filter.bin"])
    assert found(table.maintenance.verify()) == [("warning", "bloom_filter.missing")]


def test_an_index_of_vectors_that_never_were_has_no_files(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.list_(pa.float32(), 4))])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    table.indexes.create("v", "IVF_FLAT", num_partitions=1)
    assert table.maintenance.verify().findings == ()
