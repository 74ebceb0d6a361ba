"""A backup put in the place of a table that processes have open."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.storage.s3 import S3Endpoint, s3_endpoint

import weir
from weir.base import index_changes, lineage, publish
from weir.base.details_commit import update_details
from weir.base.manifest import manifest_path
from weir.base.versions import details_at
from weir.engine import concurrent_map, failpoint
from weir.engine.context import default_context
from weir.errors import ConflictError, CorruptionError, FencedError
from weir.maintenance import compact
from weir.snapshots import shard_view
from weir.storage.interface import ObjectStore

__all__ = ["s3_endpoint"]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


@pytest.fixture(autouse=True)
def _short_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    """Manifests are looked at again at every read, as they are once a minute."""
    monkeypatch.setattr(shard_view, "_MANIFEST_TRUST_SECONDS", -1.0)


def write(table: weir.Table, *ids: int, name: str, flush: bool = False) -> None:
    with table.writer(flush_on_close=flush) as writer:
        writer.upsert([{"id": n, "name": name} for n in ids])


def names(table: weir.Table) -> dict[int, str]:
    found = table.scan().to_table().to_pylist()
    assert table.get(sorted(row["id"] for row in found)).num_rows == len(found)
    return {row["id"]: row["name"] for row in found}


def restore(backup: Path, place: Path) -> None:
    for below in place.iterdir():
        shutil.rmtree(below)
    shutil.copytree(backup, place, dirs_exist_ok=True)


@pytest.mark.covering
@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("one_writer", [False, True])
def test_readers_see_a_restored_table(tmp_path: Path, flush: bool, merge: bool, one_writer: bool) -> None:
    place, backup = tmp_path / "t", tmp_path / "backup"
    table = weir.create(place, SCHEMA, primary_key="id", fsync=False)
    reader = weir.open(place, fsync=False)
    writer = table.writer(flush_on_close=False)
    writer.upsert([{"id": 1, "name": "kept"}])
    if not one_writer:
        writer.close()
    shutil.copytree(place, backup)
    if one_writer:
        writer.upsert([{"id": n, "name": "lost"} for n in (1, 2, 3)])
        writer.close()
    write(table, 1, 2, 4, name="lost", flush=flush)
    if merge:
        table.maintenance.merge()
    assert names(reader)[1] == names(table)[1] == "lost"
    restore(backup, place)
    assert names(reader) == names(weir.open(place)) == names(table) == {1: "kept"}
    other = weir.open(place, fsync=False)
    for n in range(4):
        with other.writer(flush_on_close=bool(n % 2), takeover=True) as again:
            again.upsert([{"id": n, "name": f"after {n}"}])
    expected = {n: f"after {n}" for n in range(4)}
    for seen in (reader, table, other, weir.open(place)):
        assert names(seen) == expected
        assert seen.snapshot() is not None
    other.maintenance.merge()
    assert names(reader) == names(weir.open(place)) == expected


@pytest.mark.parametrize("further", [0, 1, 3])
def test_a_table_that_is_opened_anew_is_not_taken_for_the_one_before(tmp_path: Path, further: int) -> None:
    """No handle of before is left to compare, and what the process remembers outlives handles."""
    place, backup = tmp_path / "t", tmp_path / "backup"
    write(weir.create(place, SCHEMA, primary_key="id", fsync=False), 1, name="kept")
    shutil.copytree(place, backup)

    def known(version: int) -> list[object]:
        base = weir.open(place, fsync=False).internals.base
        birth = base.row_schema.field("more").metadata[b"weir:birth"]
        return [birth, details_at(base, version)]

    lance.dataset(place).add_columns({"more": "cast(null as int)"})
    write(weir.open(place, fsync=False), 2, name="lost", flush=True)
    weir.open(place, fsync=False).maintenance.merge()
    version = weir.open(place).internals.base.version - 1
    before = known(version)
    restore(backup, place)
    lance.dataset(place).add_columns({"more": "cast(null as int)"})
    while lance.dataset(place).version < version + further:
        lance.dataset(place).update_config({"number": str(lance.dataset(place).version)})
    found = known(version)
    assert found[0] != before[0]
    default_context().cache.clear()
    assert found == known(version)


@pytest.mark.parametrize("further", [0, 1, 3])
def test_a_sound_version_below_a_torn_one_is_no_later_one_if_a_backup_is_there(
    tmp_path: Path, further: int
) -> None:
    place, backup = tmp_path / "t", tmp_path / "backup"
    table = weir.create(place, SCHEMA, primary_key="id")
    shutil.copytree(place, backup)
    table.indexes.create("name", "BTREE")
    before = table.internals.base.latest()
    restore(backup, place)
    while lance.dataset(place).version < before.version + further:
        lance.dataset(place).update_config({"number": str(lance.dataset(place).version)})
    newest = lance.dataset(place).version
    (place / manifest_path(newest + 1, counts_down=True)).touch()
    found = before.latest()
    assert found.version == newest
    assert found.torn
    assert before.is_former
    assert found.namespace != before.namespace


def test_a_reader_that_trusts_its_manifests_still_looks_again_where_a_file_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version of the base table is the one that it knows: only the shards tell."""
    monkeypatch.setattr(shard_view, "_MANIFEST_TRUST_SECONDS", 3600.0)
    place, backup = tmp_path / "t", tmp_path / "backup"
    table = weir.create(place, SCHEMA, primary_key="id", fsync=False)
    write(table, 1, name="kept", flush=True)
    assert names(table) == {1: "kept"}
    shutil.copytree(place, backup)
    write(table, 1, 2, name="lost", flush=True)
    assert names(table) == {1: "lost", 2: "lost"}
    default_context().cache.clear()
    restore(backup, place)
    assert names(table) == {1: "kept"}


@pytest.mark.parametrize("service", ["merge", "compact", "catch_up_indexes"])
def test_a_service_that_reads_manifests_anew_sees_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    """It would take the older manifest for a newer one, and pass over what the log has after it."""
    monkeypatch.setattr(shard_view, "_MANIFEST_TRUST_SECONDS", 3600.0)
    place, backup = tmp_path / "t", tmp_path / "backup"
    table = weir.create(place, SCHEMA, primary_key="id", fsync=False)
    write(table, 1, name="kept", flush=True)
    write(table, 2, name="kept")
    assert names(table) == {1: "kept", 2: "kept"}
    shutil.copytree(place, backup)
    with table.writer(takeover=True) as writer:
        writer.upsert([{"id": 3, "name": "lost"}])
    assert names(table)[3] == "lost"
    restore(backup, place)
    getattr(table.maintenance, service)()
    for _ in range(2):
        assert names(table) == names(weir.open(place)) == {1: "kept", 2: "kept"}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("paused", [False, True])
def test_writers_are_fenced_when_they_renew_their_leases(tmp_path: Path, paused: bool) -> None:
    place, backup = tmp_path / "t", tmp_path / "backup"
    table = weir.create(place, SCHEMA, primary_key="id", fsync=False)
    writer = table.writer(flush_on_close=False, lease_ttl=300.0 if paused else 1.5)
    writer.upsert([{"id": 1, "name": "kept"}])
    shutil.copytree(place, backup)
    if paused:
        writer.pause()
    else:
        time.sleep(1.5)  # the lease is renewed meanwhile
    writer.upsert([{"id": 2, "name": "lost"}])
    if paused:
        writer.pause()
    restore(backup, place)
    if not paused:
        time.sleep(1.5)
    with pytest.raises(FencedError):
        writer.upsert([{"id": 3, "name": "refused"}])
    assert names(weir.open(place)) == {1: "kept"}


def test_nothing_bridges_a_gap_that_a_restore_has_left_in_the_log(tmp_path: Path) -> None:
    """The process remembers the entries in it, and the one behind it is on the disk."""
    place, backup = tmp_path / "t", tmp_path / "backup"
    table = weir.create(place, SCHEMA, primary_key="id", fsync=False)
    writer = table.writer(flush_on_close=False, lease_ttl=1.5)
    writer.upsert([{"id": 1, "name": "kept"}])
    shutil.copytree(place, backup)
    time.sleep(1.5)  # the lease is renewed meanwhile
    for number in (2, 3):
        writer.upsert([{"id": number, "name": "lost"}])
    restore(backup, place)
    with suppress(FencedError):
        writer.upsert([{"id": 4, "name": "beyond the end"}])
    time.sleep(1.5)
    with pytest.raises(FencedError):
        writer.upsert([{"id": 5, "name": "refused"}])
    assert names(table) == names(weir.open(place)) == {1: "kept"}
    with table.writer(takeover=True, flush_on_close=False) as another:
        another.upsert([{"id": 6, "name": "after"}])
    with pytest.raises(CorruptionError, match="cannot follow the one before it"):
        names(table)
    table.maintenance.repair()
    default_context().cache.clear()
    assert names(table) == names(weir.open(place)) == {1: "kept", 6: "after"}


def test_a_paused_writer_takes_nothing_for_written_that_the_backup_lacks(tmp_path: Path) -> None:
    """It would answer from memory: what it has written before is not written again."""
    place, backup = tmp_path / "t", tmp_path / "backup"
    table = weir.create(place, SCHEMA, primary_key="id", fsync=False)
    writer = table.writer(flush_on_close=False)

    def written(number: int) -> bool:
        done = writer.upsert([{"id": number, "name": "named"}], source=weir.Source("orders", number))
        writer.pause()
        return not done.deduplicated

    assert written(1)
    shutil.copytree(place, backup)
    assert written(2)
    assert not written(2)
    restore(backup, place)
    with pytest.raises(FencedError):
        written(2)
    assert names(weir.open(place)) == {1: "named"}


def test_a_flush_after_a_quick_restore_leaves_the_table_as_it_was_restored(tmp_path: Path) -> None:
    # So quick that the lease was not renewed in between, and is in the backup as the writer knows it.
    place, backup = tmp_path / "t", tmp_path / "backup"
    table = weir.create(place, SCHEMA, primary_key="id", fsync=False)
    writer = table.writer(flush_on_close=False)
    writer.upsert([{"id": 1, "name": "kept"}])
    writer.flush()
    shutil.copytree(place, backup)
    writer.upsert([{"id": 2, "name": "lost"}])
    writer.flush()
    restore(backup, place)
    writer.upsert([{"id": 3, "name": "lost too"}])
    with pytest.raises(FencedError, match="backup"):
        writer.flush()
    with pytest.raises(FencedError):
        writer.upsert([{"id": 4, "name": "refused"}])
    # What stands behind the end of the log is of the other history, and so is what the lease says, unless the
    # writer had no time to write it there.
    try:
        assert names(weir.open(place)) == {1: "kept"}
    except CorruptionError as error:
        assert "takeover=True" in str(error)
    for entry in place.glob("_mem_wal/*/wal/*.arrow"):
        if not (backup / entry.relative_to(place)).exists():
            entry.unlink()
    with weir.open(place).writer(takeover=True) as another:
        another.upsert([{"id": 5, "name": "after"}])
    assert names(weir.open(place)) == {1: "kept", 5: "after"}


@pytest.mark.long
def test_a_restored_table_on_an_object_store(s3_endpoint: S3Endpoint) -> None:
    uri, options = s3_endpoint.new_uri(), s3_endpoint.options
    table = weir.create(uri, SCHEMA, primary_key="id", storage_options=options)
    write(table, 1, name="kept")
    store = table.internals.store
    backup = {one.path: bytes(store.get(one.path)) for one in store.list("")}
    reader = weir.open(uri, storage_options=options)
    writer = table.writer(flush_on_close=False)
    writer.upsert([{"id": n, "name": "lost"} for n in (1, 2)])
    writer.pause()
    assert names(reader) == {1: "lost", 2: "lost"}
    store.delete([one.path for one in store.list("")])
    for path, data in backup.items():
        store.put(path, data)
    assert names(reader) == names(weir.open(uri, storage_options=options)) == {1: "kept"}
    with pytest.raises(FencedError):
        writer.upsert([{"id": 3, "name": "refused"}])
    write(reader, 2, name="after")
    assert names(reader) == names(table) == {1: "kept", 2: "after"}


def restore_objects(store: ObjectStore, backup: dict[str, bytes]) -> None:
    store.delete([one.path for one in store.list("")])
    for path, data in backup.items():
        store.put(path, data)


def after_the_call(module: object, name: str, then: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    """Have a function do something else as well, once, before it returns."""
    real, left = getattr(module, name), [then]

    def call(*args: Any, **keywords: Any) -> Any:
        found = real(*args, **keywords)
        while left:
            left.pop()()
        return found

    patch.setattr(module, name, call)


def at_failpoint(name: str, then: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    left = [then]
    patch.setattr(failpoint, "reach", lambda place: left.pop()() if place == name and left else None)


def merge_all(table: weir.Table) -> None:
    table.maintenance.merge()


def write_fragments_anew(table: weir.Table) -> None:
    table.maintenance.compact()


def add_column(table: weir.Table) -> None:
    table.alter(add=[pa.field("more", pa.int64())])


def index_names(table: weir.Table) -> None:
    table.indexes.create("name", "BTREE")


def record_a_default(table: weir.Table) -> None:
    update_details(
        table.internals.base,
        lambda details: replace(details, writer_config_defaults={**details.writer_config_defaults, "a": "b"}),
    )


@pytest.mark.parametrize("where", ["disk", "store"])
@pytest.mark.parametrize("commit", ["merge", "compaction", "columns", "index", "details"])
def test_nobody_commits_above_a_table_that_was_restored_meanwhile(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, commit: str, where: str
) -> None:
    """The number of the next version is free again: nothing but a look at the one before it tells."""
    options, place = {}, str(tmp_path / "t")
    if where == "store":
        endpoint = request.getfixturevalue("s3_endpoint")
        options, place = endpoint.options, endpoint.new_uri()
    table = weir.create(place, SCHEMA, primary_key="id", storage_options=options)
    # So many that the merge is divided, and commits by itself.
    rows = 1_200 if commit == "merge" else 12
    write(table, *range(5 * rows), name="kept", flush=True)
    table.maintenance.merge()
    store = table.internals.store
    backup = {one.path: bytes(store.get(one.path)) for one in store.list("")}
    for _ in range(2):
        write(table, *range(rows), name="lost", flush=True)
        table.maintenance.merge()
    write(table, *range(rows), name="lost too", flush=True)

    def restored() -> None:
        restore_objects(store, backup)

    work: Callable[[weir.Table], object]
    match commit:
        case "merge":
            at_failpoint("merge.before_commit", restored, monkeypatch)
            work = merge_all
        case "compaction":
            after_the_call(compact, "rewrite", restored, monkeypatch)
            work = write_fragments_anew
        case "columns":
            at_failpoint("alter.before_publish", restored, monkeypatch)
            work = add_column
        case "index":
            after_the_call(index_changes, "_refuse_taken_name", restored, monkeypatch)
            work = index_names
        case _:
            after_the_call(publish, "mem_wal_index_change", restored, monkeypatch)
            work = record_a_default
    with pytest.raises(ConflictError, match=r"a backup was restored in place of the table") as refused:
        work(table)
    assert refused.value.where == store.uri
    there = {one.path for one in store.list("_versions")}
    assert {path for path in there if path.endswith(".manifest")} == {
        path for path in backup if path.startswith("_versions") and path.endswith(".manifest")
    }
    fresh = weir.open(place, storage_options=options)
    for seen in (table, fresh):
        assert set(names(seen).values()) == {"kept"}
    # A handle of before goes on with the table that is there.
    work(table)
    assert set(names(fresh).values()) == {"kept"}
    assert not fresh.maintenance.verify().findings


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("one_writer", [False, True])
def test_a_writer_that_is_opened_again_goes_on_behind_what_was_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: bool, one_writer: bool
) -> None:
    """What this process remembers of the log is of the table before: behind it there would be a gap."""
    monkeypatch.setattr(shard_view, "_MANIFEST_TRUST_SECONDS", 3600.0)
    place, backup = tmp_path / "t", tmp_path / "backup"
    table = weir.create(place, SCHEMA, primary_key="id", fsync=False)
    writer = table.writer(flush_on_close=False)
    writer.upsert([{"id": 1, "name": "kept"}])
    if not one_writer:
        writer.close()
    shutil.copytree(place, backup)
    if not one_writer:
        writer = table.writer(flush_on_close=False)
    for n in range(4):
        writer.upsert([{"id": n, "name": "lost"}])
    if flush:
        writer.flush()
        writer.upsert([{"id": 9, "name": "lost"}])
    writer.close()
    restore(backup, place)
    with table.writer(flush_on_close=False, takeover=True) as again:
        again.upsert([{"id": 2, "name": "after"}])
    default_context().cache.clear()
    assert names(weir.open(place)) == {1: "kept", 2: "after"}
    assert not table.maintenance.verify().findings


@pytest.mark.parametrize("one_writer", [False, True])
def test_what_a_writer_of_before_wrote_behind_the_end_of_the_log_is_no_part_of_it(
    tmp_path: Path, one_writer: bool
) -> None:
    """Its claim may have the very epoch of the one that comes after."""
    place, backup = tmp_path / "t", tmp_path / "backup"
    table = weir.create(place, SCHEMA, primary_key="id", fsync=False)
    writer = table.writer(flush_on_close=False)
    writer.upsert([{"id": 1, "name": "kept"}])
    if not one_writer:
        writer.close()
    shutil.copytree(place, backup)
    if not one_writer:
        writer = table.writer(flush_on_close=False)
    for n in range(2, 5):
        writer.upsert([{"id": n, "name": "lost"}])
    restore(backup, place)
    # It has not renewed its lease yet, and is acknowledged.
    ((shard, stray),) = writer.upsert([{"id": 9, "name": "stray"}]).positions.items()
    default_context().cache.clear()
    other = weir.open(place, fsync=False)
    again = other.writer(flush_on_close=False, takeover=True)
    while again.upsert([{"id": 100, "name": "after"}]).positions != {shard: stray - 1}:
        pass
    with pytest.raises(FencedError, match="has an entry of another history"):
        again.upsert([{"id": 101, "name": "after"}])
    default_context().cache.clear()
    with pytest.raises(CorruptionError, match=rf"position {stray}\).*A backup was restored") as refused:
        weir.open(place).scan().to_table()
    with pytest.raises(CorruptionError, match="A backup was restored"):
        weir.open(place, fsync=False).writer(takeover=True).upsert([{"id": 1, "name": "refused"}])
    checks = {finding.check for finding in other.maintenance.verify().findings}
    assert checks & {"wal.epoch", "wal.claim"}
    assert refused.value.where is not None
    reader = weir.open(place)
    with pytest.raises(CorruptionError, match="weir repair"):
        reader.scan().to_table()
    (said,) = weir.open(place).maintenance.repair(dry_run=True).repairs
    assert said.where == refused.value.where
    assert Path(refused.value.where.partition(" (")[0]).exists()
    assert weir.open(place, fsync=False).maintenance.repair().repairs == (said,)
    assert len([*place.glob("_weir/stray_entries/*/*.arrow")]) == 1
    assert set(names(reader).values()) == {"kept", "after"}
    assert not weir.open(place).maintenance.repair().repairs
    with weir.open(place, fsync=False).writer(flush_on_close=False, takeover=True) as last:
        last.upsert([{"id": 102, "name": "after"}])
    assert names(reader) == names(weir.open(place)) == {1: "kept", 100: "after", 102: "after"}
    assert not reader.maintenance.verify().findings


def place_of(where: str, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[str, dict[str, str]]:
    if where == "disk":
        return str(tmp_path / "t"), {}
    endpoint: S3Endpoint = request.getfixturevalue("s3_endpoint")
    return endpoint.new_uri(), endpoint.options


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Do something as another process would: this one notices nothing, and a long time passes."""
    monkeypatch.setattr(concurrent_map, "_WAVE_SECONDS", -1.0)

    def do(something: Callable[[], None]) -> None:
        known = dict(lineage.lineages)
        something()
        lineage.lineages.clear()
        lineage.lineages.update(known)

    return do


def everything(table: weir.Table) -> dict[str, Any]:
    """Return what all kinds of reads say of a table."""
    token = table.snapshot()
    found = {row["id"]: row for row in table.scan().to_table().to_pylist()}
    got = table.get(list(range(200)))
    assert {row["id"]: row for row in got.to_pylist()} == found
    assert {row["id"]: row for row in table.scan(at=token).to_table().to_pylist()} == found
    assert table.scan().count() == table.scan(at=token).count() == len(found)
    return {"columns": got.schema, "rows": found}


def with_backup(place: str, options: dict[str, str] | None) -> tuple[weir.Table, dict[str, bytes]]:
    """Return a table with merged and unmerged rows, and a copy of its objects."""
    table = weir.create(place, SCHEMA, primary_key="id", storage_options=options)
    write(table, 1, 2, name="kept", flush=True)
    table.maintenance.merge()
    write(table, 3, name="kept", flush=True)
    store = table.internals.store
    return table, {one.path: bytes(store.get(one.path)) for one in store.list("")}


def check_that_all_see_a_backup(
    place: str,
    options: dict[str, str],
    elsewhere: Callable[[Callable[[], None]], None],
    merges: int,
    sessions: int,
) -> None:
    """There are as many versions again when they look, or more, of the base table and of the manifests."""
    table, backup = with_backup(place, options)
    store = table.internals.store
    for n in range(2):
        write(table, *range(20 + 10 * n, 25 + 10 * n), name="lost", flush=True)
    if merges:
        table.maintenance.merge()
        write(table, 50, name="lost", flush=True)
    engine = weir.Engine()
    readers = [table, weir.open(place, storage_options=options)]
    readers.append(engine.open(place, storage_options=options))
    before = [everything(one) for one in readers]
    assert before[0] == before[1] == before[2]

    def restored_and_written() -> None:
        restore_objects(store, backup)
        other = weir.Engine().open(place, storage_options=options)
        for n in range(sessions + bool(merges)):
            write(other, *range(100 + 10 * n, 105 + 10 * n), name="after", flush=True)
            if n < merges:
                other.maintenance.merge()

    elsewhere(restored_and_written)
    expected = everything(weir.Engine().open(place, storage_options=options))
    assert {row["name"] for row in expected["rows"].values()} == {"kept", "after"}
    for reader in readers:
        assert everything(reader) == expected
        reader.maintenance.merge()
        assert everything(reader) == expected
    assert not readers[0].maintenance.verify().findings


@pytest.mark.parametrize("merges", [0, 1, 2])
@pytest.mark.parametrize("sessions", [1, 3])
def test_a_process_that_did_not_look_meanwhile_sees_it_all_the_same(
    tmp_path: Path, elsewhere: Callable[[Callable[[], None]], None], merges: int, sessions: int
) -> None:
    check_that_all_see_a_backup(str(tmp_path / "t"), {}, elsewhere, merges, sessions)


@pytest.mark.covering
@pytest.mark.parametrize("merges", [0, 1, 2])
@pytest.mark.parametrize("sessions", [1, 3])
def test_it_sees_a_backup_on_an_object_store_all_the_same(
    s3_endpoint: S3Endpoint, elsewhere: Callable[[Callable[[], None]], None], merges: int, sessions: int
) -> None:
    check_that_all_see_a_backup(s3_endpoint.new_uri(), s3_endpoint.options, elsewhere, merges, sessions)


@pytest.mark.parametrize("where", ["disk", "store"])
@pytest.mark.parametrize("more", [0, 1])
def test_the_columns_are_those_of_the_restored_table(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    elsewhere: Callable[[Callable[[], None]], None],
    where: str,
    more: int,
) -> None:
    """Only the base table has another version, and it has the number of the one before."""
    place, options = place_of(where, tmp_path, request)
    table, backup = with_backup(place, options)
    store = table.internals.store
    reader = weir.Engine().open(place, storage_options=options)
    table.alter(add=[pa.field("more", pa.int64())])
    everything(reader)

    def restored_and_altered() -> None:
        restore_objects(store, backup)
        other = weir.Engine().open(place, storage_options=options)
        other.alter(add=[pa.field("more", pa.string())])
        for n in range(more):
            other.alter(add=[pa.field(f"more {n}", pa.int32())])

    elsewhere(restored_and_altered)
    expected = everything(weir.Engine().open(place, storage_options=options))
    assert everything(reader) == expected
    assert everything(table) == expected
