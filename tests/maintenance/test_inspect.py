"""Every object of a table is described; a broken one as far as it can be read, with what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weir
import weir.base.published
from tests.storage.s3 import S3Endpoint, s3_endpoint
from weir.base.table import BaseTable
from weir.engine.context import default_context
from weir.errors import ObjectNotFoundError, OptionError, TableNotFoundError, UriError
from weir.format import layout, salvage, shard_manifest
from weir.log.manifest_store import read_latest_manifest
from weir.maintenance.inspect import Description, inspect
from weir.maintenance.inspection.target import split_location
from weir.storage.counting import CountingStore
from weir.storage.interface import ObjectStore
from weir.storage.open import open_store

__all__ = ["s3_endpoint"]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


@dataclass
class Stored:
    """A table with one shard: a merged generation, another one, and one entry after both."""

    table: weir.Table
    store: ObjectStore
    shard: UUID

    def look(self, what: str | None = None, *, rows: bool = False) -> Description:
        description = inspect(self.store, what, rows=rows)
        # Whatever is described can be printed as JSON.
        json.dumps(description.facts)
        return description


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 1), fsync=False)
    with table.writer() as writer:
        writer.upsert([{"id": n, "name": f"n{n}"} for n in range(4)])
    table.maintenance.merge()
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": n, "name": f"m{n}"} for n in range(2, 6)])
        (shard,) = writer.delete([3]).positions
        writer.flush()
        writer.upsert([{"id": 9, "name": "tail"}])
    return Stored(table, open_store(table.uri, fsync=False), shard)


def test_a_table_is_described_by_its_shards(stored: Stored) -> None:
    found = stored.look()
    assert (found.kind, found.where, found.problems) == ("table", stored.table.uri, ())
    assert found.facts["columns"] == {"id": "int64", "name": "string"}
    (shard,) = found.facts["shards"]
    assert (shard["shard_id"], shard["values"], shard["merged_generation"]) == (
        str(stored.shard),
        "bucket=0",
        1,
    )


def test_a_shard_and_its_manifests(stored: Stored) -> None:
    newest = read_latest_manifest(stored.store, stored.shard)
    assert newest is not None
    short = str(stored.shard)[:6]
    shard = stored.look(short)
    assert shard.facts["manifest"]["version"] == newest.version
    assert shard.facts["wal_positions"] == "1 to 6"
    assert shard.facts["manifest_versions"] == f"1 to {newest.version}"
    assert shard.facts["other_objects"] == []
    manifest = stored.look(f"{short}/manifest")
    assert manifest.facts["writer_epoch"] == newest.writer_epoch
    assert manifest.facts["values"] == {"bucket": "0"}
    assert [one["generation"] for one in manifest.facts["flushed_generations"]] == [1, 2]
    assert stored.look(f"{short}/manifest/1").facts["current_generation"] == 1
    path = layout.manifest_path(stored.shard, 1)
    assert stored.look(path) == stored.look(f"{short}/manifest/1")
    assert stored.look(layout.version_hint_path(stored.shard)).facts == {
        "version": newest.version,
        "write_id": newest.write_id.hex(),
        "proved": True,
    }


def test_a_log_entry_and_its_rows(stored: Stored) -> None:
    found = stored.look(f"{stored.shard}/wal/2", rows=True)
    assert (found.kind, found.facts["position"], found.facts["rows"]) == ("WAL entry", 2, 4)
    assert not found.facts["fence"]
    assert found.rows is not None
    assert found.rows.column("name").to_pylist() == ["n0", "n1", "n2", "n3"]
    assert stored.look(f"{stored.shard}/wal/2").rows is None
    assert stored.look(f"{stored.shard}/wal/1").facts["fence"]


def test_a_generation_with_key_index_and_bloom_filter(stored: Stored) -> None:
    found = stored.look(f"{stored.shard}/generation/2", rows=True)
    assert found.problems == ()
    assert found.facts["dataset"]["rows"] == 4
    assert found.facts["dataset"]["tombstones"] == 1
    assert found.facts["dataset"]["superseded_rows"] == 0
    index = found.facts["key_index"]
    assert (index["keys"], index["pages"], index["least"], index["greatest"]) == (4, 1, 2, 5)
    assert found.facts["bloom_filter"]["nbytes"] == 32_768
    assert 0 < found.facts["bloom_filter"]["bits_set"] <= 32
    assert found.rows is not None
    assert found.rows.num_rows == 4
    assert found.facts["catalog"]["columns"]["id"]["minimum"] == 2
    assert (
        stored.look(found.where.removeprefix(f"{stored.store.uri}/") + "/catalog.json").facts
        == (found.facts["catalog"])
    )
    assert "bloom_filter.bin" in found.facts["objects"]
    name = found.where.rsplit("/", 1)[-1]
    for inside in ("bloom_filter.bin", "_pk_index/page_data.lance", "_pk_index"):
        path = f"{layout.generation_path(stored.shard, name)}/{inside}"
        assert stored.look(path).facts == found.facts


def test_dates_that_python_has_no_value_for(tmp_path: Path) -> None:
    far = {
        "us": pa.array([2**61], pa.timestamp("us")),
        "ns": pa.array([1_234_567_890_123_456_789], pa.timestamp("ns", "UTC")),
        "day": pa.array([2**31 - 1], pa.int32()).cast(pa.date32()),
    }
    rows = pa.table({"id": [1], **far})
    table = weir.create(tmp_path / "t", rows.schema, primary_key="id", fsync=False)
    with table.writer() as writer:
        (shard,) = writer.upsert(rows).positions
    found = inspect(open_store(table.uri, fsync=False), f"{shard}/generation/1")
    assert found.problems == ()
    json.dumps(found.facts)
    columns = found.facts["catalog"]["columns"]
    assert str(2**61) in columns["us"]["minimum"]
    # With Pandas or without it.
    assert columns["ns"]["maximum"].startswith("2009-02-13")


def test_a_directory_shows_what_is_in_it(stored: Stored) -> None:
    found = stored.look(f"_mem_wal/{stored.shard}/manifest")
    assert (found.kind, found.problems) == ("directory", ())
    assert found.facts["objects"]["version_hint.json"] > 0


def test_the_files_of_lance_are_not_read(stored: Stored) -> None:
    (path,) = (one for one in stored.store.list(f"_mem_wal/{stored.shard}") if "_gen_1/data/" in one.path)
    counting = CountingStore(stored.store)
    found = inspect(counting, path.path)
    assert (found.kind, found.facts) == ("object", {"nbytes": path.size})
    assert "get" not in counting.counts


def test_rows_a_generation_of_the_library_has_superseded(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    key = {"lance-schema:unenforced-primary-key": "true"}
    schema = SCHEMA.set(0, SCHEMA.field("id").with_metadata(key))
    dataset = lance.write_dataset(schema.empty_table(), uri)
    dataset.initialize_mem_wal(bucket_column="id", num_buckets=1)
    shard = "aaaaaaaa-1111-4222-8333-bbbbbbbbbbbb"
    with dataset.mem_wal_writer(shard) as writer:
        writer.put(pa.table({"id": [1, 1, 2], "name": ["a", "b", "c"]}, schema=schema))
    found = inspect(open_store(uri), "aaaa/generation/1").facts
    assert (found["dataset"]["rows"], found["dataset"]["superseded_rows"]) == (2, 1)
    assert found["key_index"]["keys"] == 3


def test_details_and_shard_snapshots(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    details = stored.look("details")
    assert details.facts["num_shards"] == 1
    (merged,) = details.facts["merged_generations"]
    assert merged == {"shard_id": str(stored.shard), "generation": 1, "guard": 1}
    inline = stored.look("snapshots")
    assert (inline.facts["form"], len(inline.facts["shards"])) == ("inline", 1)
    monkeypatch.setattr(weir.base.published, "INLINE_SHARDS", 0)
    stored.table.maintenance.merge()
    external = stored.look("snapshots")
    assert external.facts["form"] == "file"
    (line,) = external.facts["shards"]
    assert line["values"] == "bucket=0"
    path = external.where.removeprefix(f"{stored.store.uri}/")
    assert stored.look(path).facts["shards"] == [line]
    base = BaseTable.open(stored.store)
    assert stored.look("details").facts["index_id"] == str(base.index_id)
    stored.store.delete([path])
    default_context().cache.clear()
    gone = stored.look("snapshots")
    assert "gone" in gone.problems[0]
    assert path in gone.problems[0]


def test_what_tokens_consumers_leases_and_collections_store(stored: Stored) -> None:
    token = stored.table.snapshot()
    list(stored.table.changes("earliest", consumer="billing"))
    stored.table.maintenance.collect_garbage(horizon=timedelta(0))
    pin = stored.look(f"pin/{token.pin}")
    assert (pin.kind, pin.facts["token"]["text"]) == ("snapshot pin", str(token))
    assert stored.look("consumer/billing").facts["name"] == "billing"
    assert stored.look("marks").kind == "garbage marks"
    held = stored.look(f"{stored.shard}/lease")
    assert (held.kind, held.facts["shard_id"]) == ("lease", str(stored.shard))
    overview = stored.look().facts
    assert (overview["snapshots"], overview["consumers"], overview["marks"]) == (
        [token.pin],
        ["billing"],
        True,
    )


def test_a_copy_of_an_object_outside_any_table(stored: Stored, tmp_path: Path) -> None:
    for source, name, kind in (
        (layout.manifest_path(stored.shard, 1), "one.binpb", "shard manifest"),
        (layout.wal_path(stored.shard, 2), "two.arrow", "WAL entry"),
        (layout.lease_path(stored.shard), "three.json", "lease"),
    ):
        copy = tmp_path / "copies" / name
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(bytes(stored.store.get(source)))
        root, what = split_location(str(copy), None)
        found = inspect(open_store(root), what)
        assert (found.kind, found.problems) == (kind, ())


@pytest.mark.parametrize(
    ("location", "what", "expected"),
    [
        ("people", None, ("people", None)),
        ("people/", "details", ("people", "details")),
        ("/a/people/_mem_wal/x/wal/y.arrow", None, ("/a/people", "_mem_wal/x/wal/y.arrow")),
        ("s3://b/t/_versions/1.manifest", None, ("s3://b/t", "_versions/1.manifest")),
        ("people/_mem_wal/x", "lease.json", ("people", "_mem_wal/x/lease.json")),
        ("one.binpb", None, (".", "one.binpb")),
        ("/one.binpb", None, ("/", "one.binpb")),
        ("/_mem_wal/x", None, ("/", "_mem_wal/x")),
    ],
)
def test_locations_are_taken_apart(location: str, what: str | None, expected: tuple[str, str | None]) -> None:
    assert split_location(location, what) == expected


@pytest.mark.parametrize(
    "what", ["..", "../t2", "_mem_wal/../../secret", "/etc/passwd", "_mem_wal//x", "a\x00b.json", "pin/../x"]
)
def test_nothing_outside_the_table_is_read(stored: Stored, what: str) -> None:
    with pytest.raises((UriError, OptionError, ObjectNotFoundError)):
        stored.look(what)
    assert (Path(stored.table.uri).parent / "secret").exists() is False


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("nonsense", OptionError),
        ("zzzz/manifest", OptionError),
        ("SHARD/wal/x", OptionError),
        ("SHARD/nothing", OptionError),
        ("SHARD/generation/9", OptionError),
        ("SHARD/wal/99", ObjectNotFoundError),
        ("SHARD/manifest/99", ObjectNotFoundError),
        ("consumer/nobody", ObjectNotFoundError),
        ("marks", ObjectNotFoundError),
        (f"_mem_wal/{UUID(int=1)}", ObjectNotFoundError),
        (f"_mem_wal/{UUID(int=1)}/0a1b2c3d_gen_1", ObjectNotFoundError),
    ],
)
def test_what_is_not_there_is_named(stored: Stored, what: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        stored.look(what.replace("SHARD", str(stored.shard)))


def test_no_table(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        inspect(open_store(tmp_path / "nothing"))


# --- Broken objects -------------------------------------------------------------------------------


def broken(stored: Stored, path: str, change: Callable[[bytes], bytes]) -> Description:
    stored.store.put(path, change(bytes(stored.store.get(path))))
    found = stored.look(path, rows=True)
    assert found.problems
    assert all(path in one for one in found.problems)
    return found


def flip(data: bytes, at: int = -20) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


def test_a_manifest_whose_checksum_is_wrong_still_shows_its_fields(stored: Stored) -> None:
    found = broken(stored, layout.manifest_path(stored.shard, 2), lambda data: flip(data, -1))
    assert "checksum" in found.problems[0]
    assert found.facts["version"] == "2"
    assert [one["generation"] for one in found.facts["flushed_generations"]] == ["1"]


def test_a_truncated_manifest_shows_the_fields_before_the_cut(stored: Stored) -> None:
    found = broken(stored, layout.manifest_path(stored.shard, 2), lambda data: data[:12])
    assert found.facts["version"] == "2"
    assert "flushed_generations" not in found.facts


def test_a_manifest_in_the_place_of_another_says_where_it_belongs(stored: Stored) -> None:
    data = stored.store.get(layout.manifest_path(stored.shard, 1))
    stored.store.put(layout.manifest_path(stored.shard, 2), data)
    found = stored.look(f"{stored.shard}/manifest/2")
    assert found.facts["version"] == 1
    assert layout.manifest_path(stored.shard, 1) in found.problems[0]


def test_an_entry_in_the_place_of_another_says_where_it_was_appended(stored: Stored) -> None:
    data = stored.store.get(layout.wal_path(stored.shard, 2))
    stored.store.put(layout.wal_path(stored.shard, 3), data)
    found = stored.look(f"{stored.shard}/wal/3", rows=True)
    assert found.facts["place"] == {"shard_id": str(stored.shard), "position": 2}
    assert f"position 2 of shard {stored.shard}" in found.problems[0]
    assert found.rows is not None
    assert stored.look(f"{stored.shard}/wal/2").problems == ()


def test_an_entry_whose_checksum_is_wrong_still_shows_its_rows(stored: Stored) -> None:
    found = broken(stored, layout.wal_path(stored.shard, 2), flip)
    assert "checksum" in found.problems[0]
    assert found.facts["writer_epoch"] == 1
    assert found.facts["rows"] == 4
    assert found.rows is not None
    assert found.rows.column("id").to_pylist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("cut", "rows"), [(30, 4), (130, 0)], ids=["its trailer", "its rows too"])
def test_a_truncated_entry_shows_what_it_says_of_itself(stored: Stored, cut: int, rows: int) -> None:
    found = broken(stored, layout.wal_path(stored.shard, 2), lambda data: data[:-cut])
    assert (found.facts["writer_epoch"], found.facts["generation"], found.facts["rows"]) == (1, 1, rows)
    assert "cut short" in found.problems[0]
    assert broken(stored, layout.wal_path(stored.shard, 2), lambda _: b"").facts["rows"] == 0


def test_json_objects_show_their_members_or_their_text(stored: Stored) -> None:
    path = layout.lease_path(stored.shard)
    found = broken(stored, path, lambda data: data.replace(b'"epoch": 2', b'"epoch": 3'))
    assert "checksum" in found.problems[0]
    assert found.facts["epoch"] == 3
    assert broken(stored, path, lambda data: data[:40]).facts["text"].startswith("{")
    hint = layout.version_hint_path(stored.shard)
    assert broken(stored, hint, lambda _: b'{"vers').facts == {"text": '{"vers'}


def test_a_damaged_generation_shows_the_parts_that_are_whole(stored: Stored) -> None:
    path = stored.look(f"{stored.shard}/generation/2").where.removeprefix(f"{stored.store.uri}/")
    data = f"{path}/_pk_index/page_data.lance"
    stored.store.put(data, bytes(stored.store.get(data))[:-30])
    found = stored.look(path)
    assert found.facts["key_index"] is None
    assert (found.facts["dataset"]["rows"], found.facts["bloom_filter"]["blocks"]) == (4, 1024)
    (problem,) = found.problems
    assert data in problem
    stored.store.put(f"{path}/bloom_filter.bin", b"odd")
    stored.store.delete([one.path for one in stored.store.list(f"{path}/_versions")])
    found = stored.look(path)
    assert [found.facts[name] for name in ("dataset", "key_index", "bloom_filter")] == [None] * 3
    assert len(found.problems) == 3


def test_a_shard_with_a_broken_manifest_shows_the_rest(stored: Stored) -> None:
    newest = read_latest_manifest(stored.store, stored.shard)
    assert newest is not None
    path = layout.manifest_path(stored.shard, newest.version)
    stored.store.put(path, b"\xff\xff")
    found = stored.look(str(stored.shard))
    assert found.facts["manifest"] is None
    assert found.facts["wal_positions"] == "1 to 6"
    assert path in found.problems[0]
    assert path in stored.look().problems[0]


def test_a_broken_table_manifest_is_named(stored: Stored) -> None:
    path = stored.look("details").where.removeprefix(f"{stored.store.uri}/")
    found = broken(stored, path, lambda data: data[:-1])
    assert set(found.facts) == {"nbytes"}


@given(st.binary(max_size=200), st.integers(0, 300))
def test_salvaging_never_fails(tail: bytes, keep: int) -> None:
    whole = shard_manifest.encode(
        replace(
            shard_manifest.ShardManifest(UUID(int=1), 3, writer_epoch=2),
            flushed_generations=(shard_manifest.FlushedGeneration(1, "0a1b2c3d_gen_1"),),
        )
    )
    for data in (tail, whole[:keep] + tail):
        assert isinstance(dict(salvage.shard_manifest(data)), dict)
        assert isinstance(salvage.wal_rows(data), tuple)
        assert isinstance(dict(salvage.json_text(data)), dict)


def test_one_object_costs_one_read(stored: Stored) -> None:
    store = CountingStore(stored.store)
    inspect(store, layout.wal_path(stored.shard, 2), rows=True)
    assert dict(store.counts) == {"get": 1}


def test_on_s3(s3_endpoint: S3Endpoint) -> None:
    uri, options = s3_endpoint.new_uri(), s3_endpoint.options
    table = weir.create(uri, SCHEMA, primary_key="id", storage_options=options)
    with table.writer() as writer:
        (shard,) = writer.upsert([{"id": 1, "name": "a"}]).positions
    found = inspect(open_store(uri, options), f"{shard}/generation/1")
    assert (found.facts["dataset"]["rows"], found.facts["key_index"]["keys"]) == (1, 1)
