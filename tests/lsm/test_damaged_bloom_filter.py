"""A bloom filter with bits turned over denies keys that are there; lookups find them all the same."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from weir.engine.context import default_context
from weir.errors import CorruptionError
from weir.format.shard_manifest import ShardManifest
from weir.log.manifest_store import list_shards, read_latest_manifest, update_manifest

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
KEYS = list(range(40))


class Whole:
    """A table whose generation has newer rows than its base table."""

    def __init__(self, uri: Path) -> None:
        self.table = weir.create(uri, SCHEMA, primary_key="id", fsync=False)
        self._write("old")
        self.table.maintenance.merge()
        self._write("new")
        (self.bloom_filter,) = uri.glob("_mem_wal/*/*_gen_2/bloom_filter.bin")
        (self.catalog,) = uri.glob("_mem_wal/*/*_gen_2/catalog.json")
        (self.shard,) = list_shards(self.table.internals.store)

    def _write(self, name: str) -> None:
        with self.table.writer() as writer:
            writer.upsert([{"id": key, "name": name} for key in KEYS])
            writer.flush()

    def look_up(self) -> list[str]:
        default_context().cache.clear()
        names: list[str] = weir.open(self.table.uri, fsync=False).get(KEYS)["name"].to_pylist()
        return names

    def forget_checksum(self) -> None:
        """Write the manifest as somebody does who does not know of the checksum."""

        def without(latest: ShardManifest) -> ShardManifest:
            flushed = [replace(one, bloom_filter_checksum=None) for one in latest.flushed_generations]
            return replace(latest, flushed_generations=tuple(flushed))

        update_manifest(self.table.internals.store, self.shard, without)


@pytest.fixture
def whole(tmp_path: Path) -> Whole:
    made = Whole(tmp_path / "table")
    assert made.look_up() == ["new"] * len(KEYS)
    return made


def damaged(caplog: pytest.LogCaptureFixture) -> list[str]:
    fields = [getattr(record, "event_fields", {}) for record in caplog.records]
    return [one["where"] for one in fields if one.get("event") == "generation.bloom_filter_damaged"]


@pytest.mark.covering
@pytest.mark.parametrize("content", [b"", bytes(32 * 1024), bytes(16 * 1024), b"no filter"], ids=len)
@pytest.mark.parametrize("told_by", ["manifest", "catalog"])
def test_rows_are_found_and_the_damage_is_reported(
    whole: Whole, content: bytes, told_by: str, caplog: pytest.LogCaptureFixture
) -> None:
    if told_by == "catalog":
        whole.forget_checksum()
    whole.bloom_filter.write_bytes(content)
    with caplog.at_level(logging.WARNING, logger="weir"):
        assert whole.look_up() == ["new"] * len(KEYS)
    assert damaged(caplog) == [str(whole.bloom_filter)]


def test_one_bit(whole: Whole, caplog: pytest.LogCaptureFixture) -> None:
    data = bytearray(whole.bloom_filter.read_bytes())
    at = next(at for at, byte in enumerate(data) if byte)
    data[at] &= data[at] - 1
    whole.bloom_filter.write_bytes(data)
    assert whole.look_up() == ["new"] * len(KEYS)
    assert damaged(caplog) == [str(whole.bloom_filter)]


def test_a_filter_that_is_gone_costs_time_alone(whole: Whole, caplog: pytest.LogCaptureFixture) -> None:
    whole.bloom_filter.unlink()
    assert whole.look_up() == ["new"] * len(KEYS)
    assert damaged(caplog) == []


def test_nothing_checks_a_filter_of_which_nothing_is_told(whole: Whole) -> None:
    """What the checksum is for: without one, a filter that lost its bits denies every key."""
    whole.forget_checksum()
    whole.catalog.unlink()
    assert whole.look_up() == ["new"] * len(KEYS)
    whole.bloom_filter.write_bytes(bytes(32 * 1024))
    assert whole.look_up() == ["old"] * len(KEYS)


def test_what_a_snapshot_has_loaded_unchecked_is_not_for_strong_reads(whole: Whole) -> None:
    manifest = read_latest_manifest(whole.table.internals.store, whole.shard)
    assert manifest is not None
    whole.bloom_filter.write_bytes(bytes(32 * 1024))
    whole.catalog.unlink()
    whole.forget_checksum()
    assert whole.look_up() == ["old"] * len(KEYS)
    update_manifest(
        whole.table.internals.store,
        whole.shard,
        lambda latest: replace(latest, flushed_generations=manifest.flushed_generations),
    )
    # In the same process, with what it has cached.
    found = weir.open(whole.table.uri, fsync=False).get(KEYS)
    assert found["name"].to_pylist() == ["new"] * len(KEYS)


def test_a_damaged_catalog_is_loud_where_it_has_to_tell(whole: Whole) -> None:
    whole.forget_checksum()
    whole.catalog.write_bytes(b"{}")
    with pytest.raises(CorruptionError) as caught:
        whole.look_up()
    assert caught.value.where == str(whole.catalog)
