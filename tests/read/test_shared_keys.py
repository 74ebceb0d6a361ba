"""Several shards that hold versions of one key: never wrong rows, never a raw error."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import lance
import pyarrow as pa
import pytest

import weir
from weir.base.create import create_base_table
from weir.base.schema import field_ids, table_schema
from weir.engine import failpoint
from weir.engine.context import default_context
from weir.errors import ShardConflictError, ShardingError
from weir.sharding.spec import build_spec
from weir.storage.open import open_store

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
KEY = {"lance-schema:unenforced-primary-key": "true"}
# What LanceDB calls the shards of a table of one and of two buckets.
BUCKETS = (UUID("4a388480-a25b-59a8-b058-24217f980256"), UUID("8e131bde-8368-54ff-89d9-c2e1cc781b29"))


def rows(*ids: int, name: str) -> pa.Table:
    return pa.Table.from_pylist([{"id": n, "name": name} for n in ids], SCHEMA)


def names(table: weir.Table) -> dict[int, str]:
    found = table.scan().to_table().to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["name"] for row in found}


def former_table(place: Path, buckets: int = 1) -> weir.Table:
    """Make a table as Weir made them before it had LanceDB's ids."""
    schema = table_schema(SCHEMA, ("id",))
    spec = build_spec(weir.bucket("id", buckets), schema, ["id"], field_ids(schema))
    create_base_table(open_store(str(place), fsync=False), SCHEMA, ("id",), shard_specs=(spec,))
    return weir.open(place, fsync=False)


def write_as_lancedb(table: weir.Table, shard: UUID, data: pa.Table | None) -> None:
    schema = lance.dataset(table.uri).schema
    with lance.dataset(table.uri).mem_wal_writer(str(shard)) as writer:
        if data is not None:
            writer.put(data.cast(schema))


def test_weir_and_lancedb_write_one_bucket_into_one_shard(tmp_path: Path) -> None:
    table = weir.create(tmp_path, SCHEMA, primary_key="id", shard_by=weir.bucket("id", 1), fsync=False)
    with table.writer() as writer:
        writer.upsert(rows(1, 2, name="weir"))
        assert list(writer.epochs) == [BUCKETS[0]]
    write_as_lancedb(table, BUCKETS[0], rows(2, 3, name="lancedb"))
    assert names(table) == {1: "weir", 2: "lancedb", 3: "lancedb"}
    with table.writer() as writer:
        writer.upsert(rows(3, name="weir again"))
    table.maintenance.merge()
    assert names(table) == {1: "weir", 2: "lancedb", 3: "weir again"}


@pytest.mark.parametrize("made_by_weir", [True, False])
def test_a_shard_that_lancedb_has_claimed_and_not_written_belongs_to_its_bucket(
    tmp_path: Path, made_by_weir: bool
) -> None:
    if made_by_weir:
        table = former_table(tmp_path, 2)
    else:
        schema = SCHEMA.set(0, SCHEMA.field("id").with_metadata(KEY))
        dataset = lance.write_dataset(schema.empty_table(), str(tmp_path))
        dataset.initialize_mem_wal(bucket_column="id", num_buckets=2)
        table = weir.open(tmp_path, fsync=False)
    for shard in BUCKETS:
        write_as_lancedb(table, shard, None)
    with table.writer() as writer:
        writer.upsert(rows(*range(8), name="weir"))
        assert sorted(writer.epochs) == sorted(BUCKETS)
    assert names(weir.open(tmp_path)) == dict.fromkeys(range(8), "weir")
    # Now that they are written, reads are routed and pruned.
    assert "1 of 2 shards" in weir.open(tmp_path).scan(filter="id = 3").explain()


def two_shards(place: Path) -> weir.Table:
    """Make a table of which two shards hold the only bucket, and key 2 both."""
    table = former_table(place)
    with table.writer() as writer:
        writer.upsert(rows(1, 2, name="weir"))
    write_as_lancedb(table, BUCKETS[0], rows(2, 3, name="lancedb"))
    return table


def test_reads_of_a_key_in_two_shards_are_refused_by_name(tmp_path: Path) -> None:
    table = two_shards(tmp_path)
    reads: list[Any] = [
        lambda: table.scan().to_table(),
        lambda: table.scan(filter="name = 'weir'").to_table(),
        lambda: table.scan().count(),
        lambda: table.get([2]),
        lambda: table.sql("SELECT count(*) FROM t").to_table(),
        lambda: table.sql("SELECT id FROM t ORDER BY id LIMIT 1").to_table(),
        lambda: table.sql("SELECT * FROM t ORDER BY id DESC LIMIT 1").to_table(),
        lambda: table.scan(at=table.snapshot()).to_table(),
        lambda: weir.open(tmp_path).scan().to_table(),
    ]
    for read in reads:
        with pytest.raises(ShardConflictError, match="versions of the key 2"):
            read()
    # Keys that one shard alone has are in no doubt.
    assert table.get([1, 3, 4]).to_pylist() == [{"id": 1, "name": "weir"}, {"id": 3, "name": "lancedb"}]


def test_shards_with_a_key_in_common_are_not_merged_and_not_written(tmp_path: Path) -> None:
    table = two_shards(tmp_path)
    report = table.maintenance.merge()
    assert report.generations == 0
    assert BUCKETS[0] in report.in_conflict
    assert len(report.in_conflict) == 2
    assert lance.dataset(table.uri).count_rows() == 0
    with table.writer() as writer, pytest.raises(ShardConflictError, match="2 shards hold the rows"):
        writer.upsert(rows(4, name="weir"))


def test_status_and_verify_find_two_shards_of_one_bucket(tmp_path: Path) -> None:
    table = two_shards(tmp_path)
    (twins,) = table.status().twins
    assert BUCKETS[0] in twins
    assert {one.check for one in table.maintenance.verify().errors} == {"shard.twin", "shard.shared_keys"}
    other = former_table(tmp_path / "other")
    with other.writer() as writer:
        writer.upsert(rows(1, name="weir"))
    assert other.status().twins == ()
    assert other.maintenance.verify().findings == ()


def test_whoever_opens_the_table_is_told_of_two_shards_of_one_bucket(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = former_table(tmp_path)
    with table.writer() as writer:
        writer.upsert(rows(1, name="weir"))
    write_as_lancedb(table, BUCKETS[0], rows(3, name="lancedb"))
    default_context().cache.clear()
    with caplog.at_level(logging.WARNING, logger="weir"):
        for _ in range(2):
            assert weir.open(tmp_path, fsync=False).scan().count() == 2
    told = [one.getMessage() for one in caplog.records if "twin_shards" in one.getMessage()]
    assert len(told) == 1
    assert str(BUCKETS[0]) in told[0]


def interleaved(place: Path) -> tuple[weir.Table, dict[int, str]]:
    """Write two shards of one bucket in turns, so that each has the newest version of some keys."""
    table = former_table(place)
    own = weir.open(place, fsync=False).writer(flush_on_close=False)
    own.upsert(rows(*range(10), name="weir 1"))
    own.flush()
    write_as_lancedb(table, BUCKETS[0], rows(*range(5), name="lancedb 1"))
    own.upsert(rows(3, 4, name="weir 2"))
    own.delete([0])
    own.flush()
    own.upsert(rows(1, name="weir 3"))
    own.close()
    write_as_lancedb(table, BUCKETS[0], rows(4, 20, name="lancedb 2"))
    expected = dict.fromkeys(range(10), "weir 1") | dict.fromkeys(range(5), "lancedb 1")
    expected |= {3: "weir 2", 4: "lancedb 2", 1: "weir 3", 20: "lancedb 2"}
    del expected[0]
    return table, expected


def test_repair_joins_two_shards_in_the_order_of_their_writes(tmp_path: Path) -> None:
    table, expected = interleaved(tmp_path)
    (planned,) = table.maintenance.repair(dry_run=True).repairs
    assert f"joined with shard {BUCKETS[0]}" in planned.message
    with pytest.raises(ShardConflictError):
        names(table)
    assert [one.kind for one in table.maintenance.repair().repairs] == ["shards in conflict"]
    assert names(table) == names(weir.open(tmp_path)) == expected
    assert table.status().twins == ()
    assert table.maintenance.verify().errors == ()
    assert table.maintenance.repair().repairs == ()
    # Both go on in the one that was kept.
    with table.writer() as writer:
        writer.upsert(rows(5, 6, name="weir again"))
        assert list(writer.epochs) == [BUCKETS[0]]
    write_as_lancedb(table, BUCKETS[0], rows(6, name="lancedb again"))
    table.maintenance.merge()
    assert names(table) == expected | {5: "weir again", 6: "lancedb again"}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("place", ["join.before_rows", "join.after_rows", "join.between_merges"])
def test_a_repair_that_was_killed_is_made_again(tmp_path: Path, place: str) -> None:
    table, expected = interleaved(tmp_path)
    with failpoint.armed(place, "raise"), pytest.raises(failpoint.FailpointError):
        table.maintenance.repair()
    # Merges beside it change nothing that is in doubt.
    table.maintenance.merge()
    with suppress(ShardConflictError):
        assert names(table) == expected
    table.maintenance.repair()
    table.maintenance.merge()
    assert names(table) == names(weir.open(tmp_path)) == expected


def test_versions_of_the_same_moment_are_for_the_user_to_decide(tmp_path: Path) -> None:
    table = two_shards(tmp_path)
    entries = list(tmp_path.glob("_mem_wal/*/wal/*.arrow"))
    for path in [*entries, *tmp_path.glob("_mem_wal/*/*_gen_*/_pk_index/*")]:
        os.utime(path, (1e9, 1e9))
    with pytest.raises(ShardConflictError, match="same moment"):
        table.maintenance.repair()
    (own,) = {path.parent.parent.name for path in entries} - {str(BUCKETS[0])}
    table.maintenance.repair(prefer=own)
    assert names(table) == {1: "weir", 2: "weir", 3: "lancedb"}


def test_two_shards_without_a_key_in_common_are_read_and_merged(tmp_path: Path) -> None:
    table = former_table(tmp_path)
    with table.writer() as writer:
        writer.upsert(rows(1, 2, name="weir"))
    write_as_lancedb(table, BUCKETS[0], rows(3, 4, name="lancedb"))
    expected = {1: "weir", 2: "weir", 3: "lancedb", 4: "lancedb"}
    assert names(table) == expected
    assert table.maintenance.merge().in_conflict == ()
    assert names(table) == expected


def test_rows_that_somebody_has_sent_to_a_wrong_shard_are_found(tmp_path: Path) -> None:
    """Without recorded values the rows tell that two shards may have keys in common."""
    schema = SCHEMA.set(0, SCHEMA.field("id").with_metadata(KEY))
    dataset = lance.write_dataset(schema.empty_table(), str(tmp_path))
    dataset.initialize_mem_wal(bucket_column="id", num_buckets=2)
    table = weir.open(tmp_path, fsync=False)
    write_as_lancedb(table, BUCKETS[0], rows(*range(8), name="first"))
    write_as_lancedb(table, BUCKETS[1], rows(*range(4, 12), name="second"))
    with pytest.raises(ShardConflictError, match="and 3 more"):
        table.scan().to_table()


class TestSharedByAColumnOutsideTheKey:
    """The library takes any column; a row that changes it moves to another shard."""

    SCHEMA = pa.schema([SCHEMA.field("id").with_metadata(KEY), ("region", pa.string())])

    def table(self, place: Path) -> weir.Table:
        dataset = lance.write_dataset(self.SCHEMA.empty_table(), str(place))
        dataset.initialize_mem_wal(identity_column="region")
        return weir.open(place, fsync=False)

    def test_it_is_not_written_without_the_promise(self, tmp_path: Path) -> None:
        table = self.table(tmp_path)
        with pytest.raises(ShardingError, match=r"sharded by region.*immutable=True"):
            table.writer()
        with table.writer(immutable=True) as writer:
            writer.upsert([{"id": 1, "region": "EU"}, {"id": 2, "region": "US"}])
        assert table.scan().count() == 2

    def test_a_row_that_has_moved_is_refused_and_never_read_twice(self, tmp_path: Path) -> None:
        table = self.table(tmp_path)
        for region in ("EU", "US"):
            data = pa.Table.from_pylist([{"id": 1, "region": region}], self.SCHEMA)
            write_as_lancedb(table, UUID(int=ord(region[0]), version=4), data)
        for filter in (None, "region = 'EU'"):
            with pytest.raises(ShardConflictError, match="key 1"):
                table.scan(filter=filter).to_table()
        with pytest.raises(ShardConflictError, match="key 1"):
            table.get([1])
        assert table.maintenance.merge().generations == 0
        table.maintenance.repair()
        assert table.scan().to_table().to_pylist() == [{"id": 1, "region": "US"}]
        assert table.scan(filter="region = 'EU'").count() == 0
        # A new shard for the region that another one has rows of by now would have them again.
        with pytest.raises(ShardingError, match=r"several shard values.*alter\(shard_by=\)"):
            table.writer(immutable=True).upsert([{"id": 1, "region": "DE"}])
        table.alter(shard_by=weir.bucket("id", 2))
        with table.writer() as writer:
            writer.upsert([{"id": 1, "region": "DE"}])
        assert table.scan().to_table().to_pylist() == [{"id": 1, "region": "DE"}]

    @pytest.mark.parametrize("by_weir", [True, False], ids=["by Weir", "by the library"])
    def test_once_plain_lance_has_dropped_the_column_reads_are_right_and_writes_refused(
        self, tmp_path: Path, by_weir: bool
    ) -> None:
        if by_weir:
            schema = self.SCHEMA.append(pa.field("n", pa.int64()))
            shard_by = weir.identity("region", immutable=True)
            table = weir.create(tmp_path, schema, primary_key="id", shard_by=shard_by, fsync=False)
        else:
            dataset = lance.write_dataset(
                self.SCHEMA.append(pa.field("n", pa.int64())).empty_table(), str(tmp_path)
            )
            dataset.initialize_mem_wal(identity_column="region")
            table = weir.open(tmp_path, fsync=False)
        with table.writer(immutable=True, flush_on_close=False) as writer:
            writer.upsert([{"id": 1, "region": "EU", "n": 1}, {"id": 2, "region": "US", "n": 2}])
        with table.writer(immutable=True) as writer:
            writer.upsert([{"id": 1, "region": "EU", "n": 3}])
        lance.dataset(str(tmp_path)).drop_columns(["region"])
        shown = [{"id": 1, "n": 3}, {"id": 2, "n": 2}]
        for reader in (table, weir.open(tmp_path, fsync=False)):
            assert reader.get([1, 2]).to_pylist() == shown
            assert reader.scan().to_table().sort_by("id").to_pylist() == shown
            assert reader.scan(filter="id = 1").to_table().to_pylist() == shown[:1]
            with pytest.raises(ShardingError, match="sharded by a column that was dropped"):
                reader.writer(immutable=True)
        assert table.maintenance.verify().errors == ()
        table.maintenance.recover()
        table.maintenance.merge()
        assert lance.dataset(str(tmp_path)).to_table().sort_by("id").to_pylist() == shown

    def test_a_table_made_with_the_promise_needs_no_other(self, tmp_path: Path) -> None:
        shard_by = weir.identity("region", immutable=True)
        table = weir.create(tmp_path, self.SCHEMA, primary_key="id", shard_by=shard_by, fsync=False)
        with table.writer() as writer:
            writer.upsert([{"id": 1, "region": "EU"}, {"id": 2, "region": "US"}])
        assert table.scan().count() == 2
