"""Names that come from stored bytes never lead out of the table, wherever they are stored."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest

import weir
from weir.engine.context import default_context
from weir.errors import CorruptionError, InputError
from weir.format import (
    checked_json,
    feed_consumer,
    garbage_marks,
    layout,
    shard_manifest,
    snapshot_pin,
    snapshot_token,
)
from weir.format.proto import memwal_pb2
from weir.format.snapshot_token import SnapshotToken
from weir.log.manifest_store import read_latest_manifest
from weir.storage.open import open_store

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
SHARD = UUID("4b6f8b0e-30a0-4e0f-9a5e-2f1d0c9b8a77")
NOW = datetime(2026, 1, 2, tzinfo=UTC)

OUTSIDE = [
    "",
    ".",
    "..",
    "../",
    "/",
    "/etc/passwd",
    "../../../other",
    "x/../../../../other",
    "a/b",
    "a\\..\\b",
    "..\\other",
    "a\x00b",
    "\x00",
    "a\nb",
    "%2e%2e",
    "%2e%2e%2fother",
    "a%2fb",
    "a?b",
    "a#b",
    "x" * 256,
]


def manifest_listing(path: str) -> bytes:
    """Return a manifest as a writer without checksums may leave it."""
    message = memwal_pb2.ShardManifest(version=1, current_generation=2)
    message.shard_id.uuid = SHARD.bytes
    message.flushed_generations.add(generation=1, path=path)
    data: bytes = message.SerializeToString()
    return data


@pytest.mark.parametrize("name", OUTSIDE)
def test_generations_of_a_shard_manifest(name: str) -> None:
    with pytest.raises(CorruptionError, match=r"\[here\]"):
        shard_manifest.decode(manifest_listing(name), where="here")


@pytest.mark.parametrize("name", OUTSIDE)
def test_generations_of_garbage_marks(name: str) -> None:
    shard = {"wal": [], "manifests": [], "directories": {name: NOW.isoformat()}}
    data = checked_json.encode({"write_id": "ab", "shards": {str(SHARD): shard}})
    with pytest.raises(CorruptionError, match="here"):
        garbage_marks.decode(data, where="here")


@pytest.mark.parametrize("name", OUTSIDE)
def test_shards_of_garbage_marks(name: str) -> None:
    data = checked_json.encode(
        {"write_id": "ab", "shards": {name: {"wal": [], "manifests": [], "directories": {}}}}
    )
    with pytest.raises(CorruptionError, match="here"):
        garbage_marks.decode(data, where="here")


def consumer_named(name: str) -> bytes:
    token = SnapshotToken("table", 1, ())
    members = {"token": str(token), "before": False, "max_age_seconds": 1.0, "max_wal_entries": 1}
    times = {"created_at": NOW.isoformat(), "updated_at": NOW.isoformat()}
    return checked_json.encode({"name": name, "write_id": "ab", **members, **times})


@pytest.mark.parametrize("name", [*OUTSIDE, ".hidden", "x" * 101])
def test_names_of_consumers(name: str) -> None:
    assert feed_consumer.decode(consumer_named("billing"), where="here").name == "billing"
    with pytest.raises(CorruptionError, match="here"):
        feed_consumer.decode(consumer_named(name), where="here")
    with pytest.raises(InputError):
        feed_consumer.consumer_path(name)


@pytest.mark.parametrize("name", OUTSIDE)
def test_ids_of_pins(name: str) -> None:
    with pytest.raises(InputError):
        SnapshotToken("table", 1, (), pin=name)
    with pytest.raises(InputError):
        snapshot_pin.pin_path(name)


@pytest.mark.parametrize("name", OUTSIDE)
def test_the_name_of_a_table_in_a_token_is_no_path(name: str) -> None:
    """It may be any text; all that is done with it is to compare it."""
    token = SnapshotToken(name, 1, (snapshot_token.ShardCut(SHARD, 1, 1, 1, 1),))
    assert SnapshotToken.parse(str(token)) == token


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", OUTSIDE)
def test_a_strong_read_of_a_table_with_such_a_manifest_names_it(tmp_path: Path, name: str) -> None:
    """What lies beside the table is a generation that could be read, and is not."""
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    store = open_store(table.uri, fsync=False)
    path = layout.manifest_path(SHARD, 1)
    store.put(path, manifest_listing(name))
    default_context().cache.clear()
    for read in (
        table.scan().to_table,
        lambda: table.get([1]),
        table.maintenance.merge,
        table.status,
        table.maintenance.collect_garbage,
    ):
        with pytest.raises(CorruptionError, match=path):
            read()
    assert [one.check for one in table.maintenance.verify().findings if one.severity.value == "error"] == [
        "manifest.unreadable"
    ]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "hint", [b"", b"{", b"[]", b'{"version": -1}', b'{"version": 18446744073709551616}', b'{"version": true}']
)
def test_a_hint_that_cannot_be_costs_a_look_and_no_read(tmp_path: Path, hint: bytes) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        (shard,) = writer.upsert([{"id": 1, "name": "a"}]).positions
    store = open_store(table.uri, fsync=False)
    newest = read_latest_manifest(store, shard)
    store.put(layout.version_hint_path(shard), hint)
    assert read_latest_manifest(store, shard) == newest
    assert weir.open(table.uri).scan().count() == 1
