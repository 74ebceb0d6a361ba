"""Verifying a table as a whole: the details of its MemWAL index, tokens, marks, the base table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

import pyarrow as pa

from weir.base.index_list import list_indexes
from weir.base.manifest import VERSIONS, read_manifest
from weir.base.merge_guard import guard_id, without_guards
from weir.base.published import published_shards
from weir.base.table import PLACE, BaseTable
from weir.base.versions import list_versions
from weir.base.writer_defaults import recorded_options
from weir.errors import CorruptionError, FirstIndexError, ObjectNotFoundError, OptionError, StorageError
from weir.format import feed_consumer, garbage_marks, layout, shard_snapshot, snapshot_pin, tag, version_hint
from weir.format.feed_consumer import CONSUMERS
from weir.format.garbage_marks import MARKS, Marks
from weir.format.index_details import IndexDetails
from weir.format.newest import newest_rows
from weir.format.shard_manifest import ShardManifest
from weir.format.snapshot_pin import SNAPSHOTS
from weir.format.snapshot_token import SnapshotToken
from weir.format.tag import TAGS
from weir.log.manifest_store import list_shards
from weir.lsm.damage import reading
from weir.maintenance.verification.base_versions import check_versions
from weir.maintenance.verification.facts import Need, ShardFacts
from weir.maintenance.verification.finding import Finding, Findings
from weir.maintenance.verification.isolation import isolated
from weir.maintenance.verification.objects import file_of, get_or_none, read_many
from weir.snapshots.roots import Root, snapshot_root, tag_root
from weir.storage.interface import ObjectStore

__all__ = ["BaseRowsCheck", "WholeTable", "check_base_rows", "check_whole"]

_VERSION_HINT = "latest_version_hint.json"

Held = TypeVar("Held")


@dataclass(frozen=True, slots=True)
class WholeTable:
    """What was found out about a table as a whole.

    Parameters
    ----------
    findings : tuple of Finding
        What is wrong.
    shards : tuple of ShardFacts
        What it says of every shard that has a directory.
    """

    findings: tuple[Finding, ...]
    shards: tuple[ShardFacts, ...]


def check_whole(base: BaseTable) -> WholeTable:
    """Check everything that is not in the directory of a shard, apart from the rows of the base table."""
    store = base.store
    findings = Findings(store.uri)
    where = read_manifest(store, base.version).path
    published = _published(base, where, findings)
    marks = _marks(base, findings)
    roots = _roots(base, findings)
    # After whatever names shards.
    shard_ids = list_shards(store)
    _check_directories(base, findings)
    _check_hint(base, findings)
    check_versions(base, findings)
    _check_details(base, shard_ids, where, findings)
    # What a clone says of shards, until its first write, is of those of the table it was made from.
    own = set() if _is_clone(base, shard_ids) else set(published)
    for named, check in (
        (own, "snapshot.unknown_shard"),
        (set(marks.shards), "marks.unknown_shard"),
    ):
        for shard_id in sorted(named - set(shard_ids)):
            path = where if check.startswith("snapshot") else MARKS
            findings.error(check, path, f"there is no shard {shard_id}")
    needs: dict[UUID, list[Need]] = defaultdict(list)
    for path, root, token in roots:
        details = _details_of(base, root.base_version)
        for cut in token.shards:
            shard = next((one for one in root.shards if one.shard_id == cut.shard_id), None)
            if shard is not None:
                merged = None if details is None else details.merged_generation(cut.shard_id)
                state = None if shard.manifest_version is None else cut
                need = Need(path, state, shard.first_position, cut.position, merged)
                needs[cut.shard_id].append(need)
    facts = tuple(
        ShardFacts(
            shard_id,
            base.details.merged_generation(shard_id),
            published.get(shard_id),
            marks.of(shard_id),
            tuple(needs[shard_id]),
        )
        for shard_id in shard_ids
    )
    return WholeTable(tuple(findings.found), facts)


def _is_clone(base: BaseTable, shard_ids: Collection[UUID]) -> bool:
    """Whether the table is a copy of another without its shards, and has none yet."""
    recorded = PLACE in base.details.writer_config_defaults
    return recorded and not base.is_at_its_place and not shard_ids


def _details_of(base: BaseTable, version: int | None) -> IndexDetails | None:
    """Return the details of the MemWAL index in some version; None if that cannot be read."""
    try:
        manifest = None if version is None else read_manifest(base.store, version)
        entry = None if manifest is None else manifest.mem_wal_index()
        return None if manifest is None or entry is None else manifest.decode_details(entry)
    except (CorruptionError, FirstIndexError, ObjectNotFoundError):
        return None


def _check_directories(base: BaseTable, findings: Findings) -> None:
    for name in base.store.list_directories(layout.MEM_WAL):
        try:
            known = str(UUID(name)) == name
        except ValueError:
            known = False
        if not known:
            findings.warning("shard.name", f"{layout.MEM_WAL}/{name}", "the directory is not that of a shard")


def _check_hint(base: BaseTable, findings: Findings) -> None:
    """Find that the newest version is gone: without it the table is an older one, and nothing else tells."""
    path = f"{VERSIONS}/{_VERSION_HINT}"
    data = get_or_none(base.store, path)
    hint = None if data is None else version_hint.decode(data)
    if hint is not None and hint.version > base.version:
        findings.warning(
            "base.hint",
            path,
            f"the library has written version {hint.version}, and the newest that there is is {base.version}",
        )


def _check_details(base: BaseTable, shard_ids: Collection[UUID], where: str, findings: Findings) -> None:
    details = base.details
    ids = [spec.spec_id for spec in details.shard_specs]
    if len(set(ids)) < len(ids) or any(number < 1 for number in ids):
        findings.error("details.shard_specs", where, f"the ids {ids} of the shard specs are not valid")
    for spec in details.shard_specs:
        columns = set(base.columns_of(spec).values())
        for field in spec.fields:
            for source in set(field.source_ids) - columns:
                text = f"shard field {field.field_id!r} is of a column {source}, which does not exist"
                findings.warning("details.shard_specs", where, text)
    try:
        recorded_options(details.writer_config_defaults, where=where)
    except OptionError as error:
        findings.error("details.writer_defaults", where, error.message)
    _check_progress(base, shard_ids, where, findings)
    try:
        indexes = {index.name for index in list_indexes(base.dataset)}
    except CorruptionError as error:
        findings.error("base.unreadable", where, error.message)
        return
    for name in sorted(set(details.maintained_indexes) - indexes):
        findings.warning("details.maintained_indexes", where, f"there is no index {name!r}")
    for catchup in details.index_catchup:
        if catchup.index_name not in indexes:
            text = f"there is no index {catchup.index_name!r}, and it is recorded how far it has come"
            findings.warning("details.index_catchup", where, text)
        for one in without_guards(catchup.caught_up):
            merged = details.merged_generation(one.shard_id)
            # The library credits an index with all entries of the merge progress, guards among them.
            if one.generation > merged:
                findings.error(
                    "details.index_catchup",
                    where,
                    f"index {catchup.index_name!r} covers generation {one.generation} of shard "
                    f"{one.shard_id}, of which generation {merged} is the last merged",
                )


def _check_progress(base: BaseTable, shard_ids: Collection[UUID], where: str, findings: Findings) -> None:
    recorded: Mapping[UUID, int] = {one.shard_id: one.generation for one in base.details.merged_generations}
    if len(recorded) < len(base.details.merged_generations):
        findings.error("details.merged_generations", where, "a shard is there twice")
    for shard_id in sorted({one.shard_id for one in without_guards(base.details.merged_generations)}):
        guard = recorded.get(guard_id(shard_id), 0)
        if guard > recorded[shard_id]:
            findings.error(
                "details.merged_generations",
                where,
                f"the guard of shard {shard_id} is at generation {guard}, above {recorded[shard_id]}, "
                "the last one merged",
            )
        if shard_id not in shard_ids and not _is_clone(base, shard_ids):
            findings.warning("details.merged_generations", where, f"there is no shard {shard_id}")


def _published(base: BaseTable, where: str, findings: Findings) -> dict[UUID, ShardManifest]:
    details = base.details
    try:
        path = shard_snapshot.snapshot_path(details, base.index_id, where=where)
        if path is not None and base.store.head(path) is None:
            findings.warning(
                "snapshot.missing", path, "the file of the shard snapshot is gone; a merge publishes it again"
            )
            return {}
        shards = published_shards(base)
    except CorruptionError as error:
        findings.error("snapshot.unreadable", where, error.message)
        return {}
    if details.snapshot_ts_millis and len(shards) != details.num_shards:
        findings.error(
            "snapshot.num_shards", where, f"num_shards is {details.num_shards}, of {len(shards)} shards"
        )
    return {one.shard_id: one for one in shards}


def _marks(base: BaseTable, findings: Findings) -> Marks:
    data = get_or_none(base.store, MARKS)
    if data is None:
        return Marks()
    try:
        return garbage_marks.decode(data, where=MARKS)
    except CorruptionError as error:
        findings.error("marks.unreadable", file_of(base.store, MARKS), error.message)
        return Marks()


def _roots(base: BaseTable, findings: Findings) -> list[tuple[str, Root, SnapshotToken]]:
    """Check pins, consumers and tags; return what those that hold need."""
    store = base.store
    now = datetime.now(UTC)
    found: list[tuple[str, Root, SnapshotToken]] = []
    for path, pin in _decoded(store, SNAPSHOTS, snapshot_pin.decode, "pin.unreadable", findings):
        if path != snapshot_pin.pin_path(str(pin.token.pin)):
            findings.error("pin.name", path, f"the object holds the pin {pin.token.pin}")
        elif _is_of_table(base, pin.token, path, findings) and pin.expires_at > now:
            found.append((path, snapshot_root(pin), pin.token))
    for path, consumer in _decoded(store, CONSUMERS, feed_consumer.decode, "consumer.unreadable", findings):
        if path != f"{CONSUMERS}/{consumer.name}.json":
            findings.error("consumer.name", path, f"the object holds the consumer {consumer.name[:100]!r}")
        else:
            _is_of_table(base, consumer.token, path, findings)
    for path, named in _decoded(store, TAGS, tag.decode, "tag.unreadable", findings):
        if path != tag.tag_path(named.name):
            findings.error("tag.name", path, f"the object holds the tag {named.name!r}")
        elif _is_of_table(base, named.token, path, findings):
            found.append((path, tag_root(named), named.token))
    _check_versions(base, found, findings)
    return found


def _decoded(
    store: ObjectStore, directory: str, decode: Callable[..., Held], check: str, findings: Findings
) -> Iterator[tuple[str, Held]]:
    """Yield the objects of a directory that can be read, with their paths; report the others."""
    for path, data in read_many(store, [one.path for one in store.list(directory)]):
        if data is None:
            continue
        try:
            held = decode(data, where=path)
        except CorruptionError as error:
            findings.error(check, file_of(store, path), error.message)
        else:
            yield path, held


def _is_of_table(base: BaseTable, token: SnapshotToken, path: str, findings: Findings) -> bool:
    if token.table == base.identity:
        return True
    findings.error("token.table", path, f"the token is of the table {token.table[:100]!r}")
    return False


def _check_versions(
    base: BaseTable, roots: list[tuple[str, Root, SnapshotToken]], findings: Findings
) -> None:
    if not roots:
        return
    versions = {one.version for one in list_versions(base.store)}
    for path, root, _ in roots:
        if root.base_version is not None and root.base_version not in versions:
            findings.error(
                "token.expired",
                path,
                f"the token needs version {root.base_version} of the base table, which is gone",
            )


@dataclass(frozen=True, slots=True)
class BaseRowsCheck:
    """The task of reading all rows of the base table. Picklable.

    Parameters
    ----------
    base : BaseTable
        The base table.
    """

    base: BaseTable


def check_base_rows(check: BaseRowsCheck) -> tuple[Finding, ...]:
    """Read every value of the base table; every key must be there once."""
    base = check.base
    what = f"version {base.version} of the base table"
    try:
        return isolated(_check_rows, check, what=what, where=base.uri)
    except (CorruptionError, StorageError) as error:
        findings = Findings(base.uri)
        findings.error("base.unreadable", "", error.message)
        return tuple(findings.found)


def _check_rows(check: BaseRowsCheck) -> tuple[Finding, ...]:
    base = check.base
    findings = Findings(base.uri)
    names = list(base.primary_key)
    schema = pa.schema([base.schema.field(name) for name in names]).remove_metadata()
    try:
        with reading(f"version {base.version} of the base table", base.uri):
            base.dataset.validate()  # type: ignore[no-untyped-call]
            batches = [
                batch.select(names).cast(schema)
                for batch in base.dataset.scanner(scan_in_order=False).to_batches()
            ]
    except (CorruptionError, StorageError) as error:
        findings.error("base.unreadable", "", error.message)
        return tuple(findings.found)
    keys = pa.Table.from_batches(batches, schema)
    nulls = [name for name in names if keys.column(name).null_count]
    if nulls:
        findings.error("base.keys", "", f"the key column {nulls[0]!r} has nulls")
    elif names and keys.num_rows:
        distinct = len(newest_rows([keys.column(name).combine_chunks() for name in names]))
        if distinct < keys.num_rows:
            text = f"{keys.num_rows} rows have {distinct} keys, so that some are there twice"
            findings.error("base.keys", "", text)
    return tuple(findings.found)
