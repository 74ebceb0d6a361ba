"""Fields that a newer library writes survive every update that Weir makes.

They are put on storage the way a newer library would: in messages of every level, and in WAL entries.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.conformance import library

import weir
import weir.merge.service
from weir.base.details_commit import update_details
from weir.base.table import BaseTable
from weir.errors import CorruptionError
from weir.format import index_details, layout, shard_manifest, wal_entry
from weir.format.index_details import IndexCatchup, IndexDetails, MergedGeneration, ShardSpec
from weir.format.shard_manifest import ShardManifest
from weir.format.unknown_fields import NOTED, carry_over, has_unknown_fields, restored
from weir.format.wal_entry import wal_schema
from weir.format.wal_header import WalEntryHeader
from weir.storage.open import open_store

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def unknown(number: int) -> bytes:
    """Return a field with the number 900 and a text that tells where it was put."""
    text = f"at {number}".encode()
    return b"\xa2\x38" + bytes([len(text)]) + text


# Field 11 of a manifest and field 1 of a merged generation are messages themselves: a shard's id.
IN_THE_ID_OF_A_MANIFEST = b"\x5a" + bytes([len(unknown(9))]) + unknown(9)
IN_THE_ID_OF_A_GENERATION = b"\x0a" + bytes([len(unknown(8))]) + unknown(8)


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    made = weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 1), fsync=False)
    with made.writer() as writer:
        writer.upsert([{"id": 1, "name": "first"}])
    return made


def stamp_manifest(place: Path, shard: uuid.UUID) -> None:
    latest = library.manifest_of(place, shard)
    stamped = replace(
        latest,
        version=latest.version + 1,
        unknown_fields=IN_THE_ID_OF_A_MANIFEST + unknown(1),
        flushed_generations=tuple(
            replace(one, unknown_fields=unknown(2)) for one in latest.flushed_generations
        ),
        shard_fields=tuple(replace(one, unknown_fields=unknown(3)) for one in latest.shard_fields),
    )
    path = place / layout.manifest_path(shard, stamped.version)
    path.write_bytes(shard_manifest.encode(stamped))


def assert_stamped(manifest: ShardManifest) -> None:
    assert manifest.unknown_fields == IN_THE_ID_OF_A_MANIFEST + unknown(1)
    assert manifest.flushed_generations[0].unknown_fields == unknown(2)
    assert [one.unknown_fields for one in manifest.shard_fields] == [unknown(3)]


def test_in_shard_manifests(table: weir.Table, tmp_path: Path) -> None:
    place = tmp_path / "t"
    (shard,) = library.shards_of(place)
    stamp_manifest(place, shard)
    versions = [library.manifest_of(place, shard).version]

    def changed() -> None:
        manifest = library.manifest_of(place, shard)
        assert manifest.version > versions[-1]
        assert_stamped(manifest)
        versions.append(manifest.version)

    with table.writer() as writer:
        writer.upsert([{"id": 2, "name": "second"}])
        changed()  # by a claim
        writer.flush()
        changed()  # by a flush
    with table.writer(takeover=True) as writer:
        writer.upsert([{"id": 3, "name": "third"}])
        changed()
    changed()
    table.maintenance.merge()
    assert_stamped(library.manifest_of(place, shard))


def stamped_details(details: IndexDetails) -> IndexDetails:
    (spec,) = details.shard_specs
    (field,) = spec.fields
    other = MergedGeneration(uuid.UUID(int=7), 3, IN_THE_ID_OF_A_GENERATION + unknown(4))
    caught_up = (replace(other, unknown_fields=unknown(7)),)
    return replace(
        details,
        unknown_fields=unknown(1),
        shard_specs=(
            replace(spec, unknown_fields=unknown(2), fields=(replace(field, unknown_fields=unknown(3)),)),
        ),
        merged_generations=(*details.merged_generations, other),
        index_catchup=(*details.index_catchup, IndexCatchup("id_idx", caught_up, unknown(6))),
    )


def assert_details_stamped(details: IndexDetails, *, catchup: bool = True) -> None:
    assert details.unknown_fields == unknown(1)
    (spec,) = details.shard_specs
    assert (spec.unknown_fields, spec.fields[0].unknown_fields) == (unknown(2), unknown(3))
    (other,) = (one for one in details.merged_generations if one.shard_id.int == 7)
    assert other.unknown_fields == IN_THE_ID_OF_A_GENERATION + unknown(4)
    for one in details.index_catchup if catchup else ():
        if one.index_name == "id_idx":
            assert one.unknown_fields == unknown(6)
            assert [part.unknown_fields for part in one.caught_up if part.shard_id.int == 7] == [unknown(7)]


def test_in_index_details(table: weir.Table, tmp_path: Path) -> None:
    place = tmp_path / "t"
    update_details(BaseTable.open(open_store(place)), stamped_details)
    assert_details_stamped(library.details_of(place))
    table = weir.open(place, fsync=False)

    def check(step: Callable[[], Any], *, catchup: bool = True) -> None:
        version = lance.dataset(str(place)).version
        step()
        assert lance.dataset(str(place)).version > version
        assert_details_stamped(library.details_of(place), catchup=catchup)

    check(table.maintenance.merge)  # rows, key index, shard snapshots
    with table.writer() as writer:
        writer.delete([1])
        writer.upsert([{"id": 2, "name": "second"}])
    check(table.maintenance.merge)  # two commits of rows
    with table.writer() as writer:
        writer.delete([2])
    check(table.maintenance.merge)
    # What was recorded of an index is gone with an operation on that index; a later record is another one.
    check(lambda: table.indexes.create("name", "BTREE"), catchup=False)
    for number in range(3, 6):
        with table.writer() as writer:
            writer.upsert([{"id": number, "name": f"number {number}"}])
        check(table.maintenance.merge, catchup=False)
    check(table.maintenance.catch_up_indexes, catchup=False)
    check(table.maintenance.compact, catchup=False)
    check(lambda: table.indexes.drop("name_idx"), catchup=False)
    assert NOTED not in library.details_of(place).writer_config_defaults
    table.maintenance.collect_garbage(horizon=timedelta(0))
    table.maintenance.collect_garbage(horizon=timedelta(0))
    assert_details_stamped(library.details_of(place), catchup=False)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("later", ["merge", "create_index"])
def test_what_a_process_that_died_had_noted_is_restored(
    table: weir.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    """It dies after the library has committed a merge, and dropped them; later ones may be of any kind."""
    place = tmp_path / "t"
    update_details(BaseTable.open(open_store(place)), stamped_details)

    def die(base: BaseTable) -> BaseTable:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(weir.merge.service, "extend_key_index", die)
        with pytest.raises(KeyboardInterrupt):
            table.maintenance.merge()
    assert not has_unknown_fields(library.details_of(place))
    assert NOTED in library.details_of(place).writer_config_defaults
    table = weir.open(place, fsync=False)
    assert table.maintenance.verify().passed
    table.maintenance.merge() if later == "merge" else table.indexes.create("name", "BTREE")
    assert_details_stamped(library.details_of(place), catchup=False)
    assert NOTED not in library.details_of(place).writer_config_defaults


def test_a_note_that_cannot_be_read_is_corruption() -> None:
    for text in ("no base64!", "AAAA"):
        with pytest.raises(CorruptionError):
            restored(IndexDetails(writer_config_defaults={NOTED: text}))


def test_the_librarys_own_merge_drops_them(table: weir.Table, tmp_path: Path) -> None:
    """Why Weir writes them back: should the library keep them one day, that can go."""
    place = tmp_path / "t"
    base = update_details(BaseTable.open(open_store(place)), stamped_details)
    (shard,) = library.shards_of(place)
    rows = pa.table({"id": [5], "name": ["fifth"]}, schema=base.schema)
    merge = base.dataset.merge_insert(["id"]).when_not_matched_insert_all()
    merge.mark_sstables_as_compacted([lance.CompactedSsTable(str(shard), 1)]).execute(rows)
    assert not has_unknown_fields(library.details_of(place))


def test_parts_are_matched_by_what_identifies_them() -> None:
    merged = MergedGeneration(uuid.UUID(int=1), 4, unknown(1))
    older = IndexDetails(
        shard_specs=(ShardSpec(1, (), unknown(2)), ShardSpec(2, (), unknown(3))),
        merged_generations=(merged,),
        index_catchup=(IndexCatchup("a", (merged,), unknown(4)), IndexCatchup("b", (), unknown(5))),
    )
    now = IndexDetails(
        shard_specs=(ShardSpec(2), ShardSpec(3)),
        merged_generations=(MergedGeneration(uuid.UUID(int=1), 5), MergedGeneration(uuid.UUID(int=2), 1)),
        index_catchup=(IndexCatchup("b", (), b""),),
    )
    carried = carry_over(now, older)
    assert [spec.unknown_fields for spec in carried.shard_specs] == [unknown(3), b""]
    assert carried.merged_generations == (replace(merged, generation=5), now.merged_generations[1])
    assert carried.index_catchup == (IndexCatchup("b", (), unknown(5)),)
    assert index_details.decode(index_details.encode(carried), where="test") == carried
    assert has_unknown_fields(older)
    assert not has_unknown_fields(now)


def test_metadata_of_wal_entries_is_passed_over(table: weir.Table, tmp_path: Path) -> None:
    """An entry is never changed, so it need only be readable with keys that nobody knows."""
    place = tmp_path / "t"
    (shard,) = library.shards_of(place)
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": 1, "name": "again"}])
        epoch = writer.epochs[shard]
    entries = sorted(
        layout.parse_wal_name(path.name) for path in (place / layout.wal_directory(shard)).iterdir()
    )
    schema = wal_schema(table.schema).with_metadata({"newer": "fact", "compression": "none"})
    row = pa.record_batch([pa.array([2]), pa.array(["second"]), pa.array([False])], schema=schema)
    newer = wal_entry.encode(
        WalEntryHeader(epoch, library.manifest_of(place, shard).current_generation), schema, [row]
    )
    (place / layout.wal_path(shard, entries[-1] + 1)).write_bytes(b"".join(newer))
    expected = [{"id": 1, "name": "again"}, {"id": 2, "name": "second"}]
    assert weir.open(place, fsync=False).scan().to_table().sort_by("id").to_pylist() == expected
    with table.writer() as writer:
        writer.delete([7])
    assert library.scan(place).select(SCHEMA.names).sort_by("id").to_pylist() == expected
