"""Showing the content of an object of a table, for people and programs.

Damaged objects are described as far as they can be read, with their problems.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa

from weir.base.dataset import open_dataset
from weir.base.index_list import list_indexes
from weir.base.manifest import VERSIONS, TableManifest, read_manifest
from weir.base.published import decode_snapshot, published_shards
from weir.base.table import BaseTable
from weir.errors import CorruptionError, FirstIndexError, InputError, ObjectNotFoundError, WeirError
from weir.format import (
    feed_consumer,
    garbage_marks,
    generation_catalog,
    layout,
    lease,
    salvage,
    shard_manifest,
    shard_snapshot,
    snapshot_pin,
    tag,
    version_hint,
    wal_entry,
)
from weir.format.feed_consumer import CONSUMERS
from weir.format.first_index_details import is_first_form
from weir.format.garbage_marks import MARKS
from weir.format.index_details import ShardSpec
from weir.format.shard_manifest import ShardManifest
from weir.format.snapshot_pin import SNAPSHOTS
from weir.format.tag import TAGS
from weir.format.wal_entry import WalEntry
from weir.log.manifest_store import list_shards, read_latest_manifest
from weir.maintenance.inspection import describe
from weir.maintenance.inspection.describe import plain
from weir.maintenance.inspection.description import Description
from weir.maintenance.inspection.generation import inspect_generation
from weir.maintenance.inspection.target import resolve
from weir.maintenance.verification.objects import ShardObjects
from weir.storage.interface import Bytes, ObjectStore

__all__ = ["Description", "inspect"]


def inspect(store: ObjectStore, what: str | None = None, *, rows: bool = False) -> Description:
    """Describe a table, or an object in it. Writes nothing.

    Parameters
    ----------
    store : ObjectStore
        The table's store; or, for a single file, that of its directory.
    what : str, optional
        A path below the table, or a short name: ``details``, ``snapshots``, ``marks``, ``pin/ID``,
        ``consumer/NAME``, or ``SHARD`` (the start of its id), ``SHARD/manifest``, ``SHARD/manifest/VERSION``,
        ``SHARD/wal/POSITION``, ``SHARD/generation/NUMBER``, ``SHARD/lease``. Default: the table.
    rows : bool, default False
        Whether to return the rows of a log entry or a generation too.

    Returns
    -------
    Description
        Its content and its problems.

    Raises
    ------
    ObjectNotFoundError
        If there is no such object.
    TableNotFoundError
        If there is no table.
    OptionError, UriError
        If ``what`` is not understood, or points outside the table.
    """
    target = resolve(store, what)
    if target.kind in {"table", "details"}:
        try:
            base = BaseTable.open(store)
        except FirstIndexError:
            return _newest_details(store)
        except CorruptionError:
            found = _newest_details(store)
            if found.problems:
                return found
            raise
        if target.kind == "table":
            return _table(store, base)
        return _table_manifest(store, read_manifest(store, base.version).path)
    if target.kind == "snapshots":
        return _published(BaseTable.open(store))
    if target.kind == "shard":
        return _shard(store, target.path)
    if target.kind == "generation":
        if not store.list(target.path):
            raise ObjectNotFoundError("there is no such generation", where=f"{store.uri}/{target.path}")
        return inspect_generation(store, target.path, rows=rows)
    return _object(store, target.path, rows=rows)


def _newest_details(store: ObjectStore) -> Description:
    return _table_manifest(store, read_manifest(store, open_dataset(store).version).path)


def _table(store: ObjectStore, base: BaseTable) -> Description:
    problems: list[str] = []
    shards = []
    for shard_id in list_shards(store):
        try:
            manifest = read_latest_manifest(store, shard_id)
        except CorruptionError as error:
            problems.append(str(error))
            continue
        if manifest is not None:
            shards.append(_shard_line(manifest, base))
    facts = {
        "identity": base.identity,
        "base_version": base.version,
        "base_rows": base.dataset.count_rows(),
        "primary_key": list(base.primary_key),
        "columns": {field.name: str(field.type) for field in base.schema},
        "indexes": [index.name for index in list_indexes(base.dataset) if index.field_names],
        "shards": shards,
        "snapshots": _names(store, SNAPSHOTS),
        "tags": _names(store, TAGS),
        "consumers": _names(store, CONSUMERS),
        "marks": store.head(MARKS) is not None,
    }
    return Description("table", store.uri, facts, tuple(problems))


def _shard_line(manifest: ShardManifest, base: BaseTable) -> dict[str, Any]:
    merged = base.details.merged_generation(manifest.shard_id)
    values = describe.manifest_facts(manifest, _specs_of(base)).get("values", {})
    return {
        "shard_id": str(manifest.shard_id),
        "values": ", ".join(f"{name}={value}" for name, value in values.items()),
        "status": manifest.status.name,
        "version": manifest.version,
        "writer_epoch": manifest.writer_epoch,
        "current_generation": manifest.current_generation,
        "merged_generation": merged,
        "listed": len(manifest.flushed_generations),
        "replay_after": manifest.replay_after_wal_entry_position,
    }


def _names(store: ObjectStore, directory: str) -> list[str]:
    paths = sorted({one.path for one in store.list(directory)})
    return [path.removeprefix(f"{directory}/").removesuffix(".json") for path in paths]


def _specs_of(base: BaseTable) -> Mapping[int, ShardSpec]:
    return {spec.spec_id: spec for spec in base.details.shard_specs}


def _specs(store: ObjectStore) -> Mapping[int, ShardSpec]:
    """Return the shard specs of the table, none if it cannot be opened: the object may be a copy."""
    try:
        return _specs_of(BaseTable.open(store))
    except WeirError:
        return {}


def _published(base: BaseTable) -> Description:
    details = base.details
    where = f"{base.uri}, MemWAL index of version {base.version}"
    form = "inline"
    problems: tuple[str, ...] = ()
    shards: tuple[ShardManifest, ...] = ()
    try:
        path = shard_snapshot.snapshot_path(details, base.index_id, where=where)
        if path is not None:
            form, where = "file", f"{base.uri}/{path}"
            if base.store.head(path) is None:
                raise CorruptionError(
                    "the file of the shard snapshot is gone", where=where, hint="Publish it again: merge"
                )
        shards = published_shards(base)
    except CorruptionError as error:
        problems = (str(error),)
    facts = {
        "form": form if details.snapshot_ts_millis else "none",
        **{name: describe.details_facts(details)[name] for name in ("snapshot_ts_millis", "num_shards")},
        "shards": [_snapshot_line(one, _specs_of(base)) for one in shards],
    }
    return Description("shard snapshot", where, facts, problems)


def _snapshot_line(manifest: ShardManifest, specs: Mapping[int, ShardSpec]) -> dict[str, Any]:
    facts = describe.manifest_facts(manifest, specs)
    values = facts.get("values") or {one["field_id"]: one["value"] for one in facts["shard_fields"]}
    return {
        **{
            name: facts[name]
            for name in (
                "shard_id",
                "version",
                "shard_spec_id",
                "writer_epoch",
                "replay_after_wal_entry_position",
                "wal_entry_position_last_seen",
                "current_generation",
            )
        },
        "flushed_generations": ", ".join(one.path for one in manifest.flushed_generations),
        "values": ", ".join(f"{name}={value}" for name, value in values.items()),
    }


def _shard(store: ObjectStore, path: str) -> Description:
    shard_id = _uuid(path.rsplit("/", 1)[-1], path)
    listed = [one.path for one in store.list(path)]
    if not listed:
        raise ObjectNotFoundError("there is no such shard", where=f"{store.uri}/{path}")
    objects = ShardObjects.of(listed, shard_id)
    problems: tuple[str, ...] = ()
    newest: ShardManifest | None = None
    try:
        newest = read_latest_manifest(store, shard_id)
    except CorruptionError as error:
        problems = (str(error),)
    facts = {
        "manifest": None if newest is None else describe.manifest_facts(newest, _specs(store)),
        "manifest_versions": _ranges(objects.manifests),
        "wal_positions": _ranges(objects.log),
        "directories": sorted(objects.directories, key=lambda name: objects.directories[name]),
        "lease": layout.lease_path(shard_id) in objects.single,
        "other_objects": objects.unknown,
    }
    return Description("shard", f"{store.uri}/{path}", facts, problems)


def _ranges(numbers: Mapping[int, object]) -> str:
    """Return numbers as people write them: ``1 to 4, 7``."""
    ordered = sorted(numbers)
    starts = [n for n in ordered if n - 1 not in numbers]
    ends = [n for n in ordered if n + 1 not in numbers]
    spans = zip(starts, ends, strict=True)
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in spans)


def _uuid(text: str, path: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise InputError(f"{text[:60]!r} is not a shard id", where=path) from error


def _object(store: ObjectStore, path: str, *, rows: bool) -> Description:
    name = path.rsplit("/", 1)[-1]
    if path.startswith(f"{VERSIONS}/"):
        return _table_manifest(store, path)
    if name.endswith((".lance", ".idx", ".txn")) and name != "index.lance" and "/wal/" not in path:
        # Lance's own, and perhaps very large.
        found = store.head(path)
        if found is not None:
            return Description("object", f"{store.uri}/{path}", {"nbytes": found.size})
    try:
        data = store.get(path)
    except ObjectNotFoundError:
        return _directory(store, path)
    reader = _Reader(store, path, data)
    if name.endswith(".binpb"):
        return reader.manifest()
    if name.endswith(layout.WAL_SUFFIXES) and (name.endswith(".arrow") or "/wal/" in path):
        return reader.entry(rows=rows)
    if name == "index.lance":
        return reader.snapshot()
    if name == layout.BLOOM_FILTER:
        return inspect_generation(store, path.rpartition("/")[0], rows=False)
    if name == "version_hint.json":
        return reader.hint()
    for kind, recognises in _JSON_KINDS.items():
        if recognises(path, salvage.json_text(data)):
            return reader.json(kind)
    return Description("object", reader.where, {"nbytes": memoryview(data).nbytes})


def _directory(store: ObjectStore, path: str) -> Description:
    objects = {one.path.removeprefix(f"{path}/"): one.size for one in store.list(path)}
    if not objects:
        raise ObjectNotFoundError("there is no such object", where=f"{store.uri}/{path}")
    return Description("directory", f"{store.uri}/{path}", {"objects": objects})


_Recognises = Callable[[str, Mapping[str, Any]], bool]
# By the place in a table or, for a copy somewhere else, by the members.
_JSON_KINDS: Mapping[str, _Recognises] = {
    "lease": lambda path, members: path.endswith("lease.json") or "holder" in members,
    "snapshot pin": lambda path, members: (
        path.startswith(SNAPSHOTS) or {"token", "expires_at"} <= set(members)
    ),
    "tag": lambda path, members: (
        path.startswith(TAGS) or {"name", "token", "write_id"} == set(members) - {"created_at"}
    ),
    "consumer": lambda path, members: path.startswith(CONSUMERS) or "max_wal_entries" in members,
    "generation catalog": lambda path, members: path.endswith(layout.CATALOG) or "bounds" in members,
    "garbage marks": lambda path, members: path == MARKS or {"shards", "write_id"} <= set(members),
}
_DECODERS: Mapping[str, Callable[..., object]] = {
    "lease": lease.decode,
    "snapshot pin": snapshot_pin.decode,
    "tag": tag.decode,
    "consumer": feed_consumer.decode,
    "generation catalog": generation_catalog.decode,
    "garbage marks": garbage_marks.decode,
}


@dataclass(frozen=True, slots=True)
class _Reader:
    """Describes one object that has been read."""

    store: ObjectStore
    path: str
    data: Bytes

    @property
    def where(self) -> str:
        return f"{self.store.uri}/{self.path}"

    def manifest(self) -> Description:
        try:
            manifest = shard_manifest.decode(self.data, where=self.where)
        except CorruptionError as error:
            left = salvage.shard_manifest(self.data)
            return Description("shard manifest", self.where, left, (str(error),))
        facts = describe.manifest_facts(manifest, _specs(self.store))
        return Description("shard manifest", self.where, facts, self._name_problem(manifest))

    def _name_problem(self, manifest: ShardManifest) -> tuple[str, ...]:
        parts = self.path.split("/")
        if len(parts) != 4:
            return ()
        own = layout.manifest_path(manifest.shard_id, manifest.version)
        return () if own == self.path else (f"its place should be {own} [{self.where}]",)

    def entry(self, *, rows: bool) -> Description:
        try:
            entry = wal_entry.decode(self.data, where=self.where)
        except CorruptionError as error:
            return self._broken_entry(error, rows=rows)
        facts = {**self._position(), **describe.entry_facts(entry, memoryview(self.data).nbytes)}
        table = pa.Table.from_batches(entry.batches, entry.schema) if rows else None
        return Description("WAL entry", self.where, facts, self._place_problem(entry), table)

    def _place_problem(self, entry: WalEntry) -> tuple[str, ...]:
        place = entry.header.place
        if place is None or self.path.count("/") != 3:
            return ()  # without a place, or a copy somewhere else
        own = {layout.wal_path(place.shard_id, place.position, suffix) for suffix in layout.WAL_SUFFIXES}
        return () if self.path in own else (f"it was appended at {place} [{self.where}]",)

    def _broken_entry(self, error: CorruptionError, *, rows: bool) -> Description:
        facts = self._position()
        with suppress(CorruptionError):
            facts |= describe.header_facts(wal_entry.decode_header(self.data, where=self.where))
        batches = salvage.wal_rows(self.data)
        facts |= {
            "nbytes": memoryview(self.data).nbytes,
            "rows": sum(batch.num_rows for batch in batches),
            "batches": len(batches),
        }
        table = pa.Table.from_batches(batches) if rows and batches else None
        return Description("WAL entry", self.where, facts, (str(error),), table)

    def _position(self) -> dict[str, Any]:
        try:
            return {"position": layout.parse_wal_name(self.path.rsplit("/", 1)[-1])}
        except InputError:
            return {}

    def snapshot(self) -> Description:
        try:
            self._prove_snapshot()
            shards: Sequence[ShardManifest] = decode_snapshot(self.data, self.where)
        except CorruptionError as error:
            size = {"nbytes": memoryview(self.data).nbytes}
            return Description("shard snapshot", self.where, size, (str(error),))
        specs = _specs(self.store)
        lines = [_snapshot_line(one, specs) for one in shards]
        return Description("shard snapshot", self.where, {"form": "file", "shards": lines})

    def _prove_snapshot(self) -> None:
        """Compare the file with what the newest version records of it, if it is the file of that."""
        try:
            base = BaseTable.open(self.store)
        except WeirError:
            return  # a copy somewhere else
        if shard_snapshot.snapshot_path(base.details, base.index_id, where=self.where) == self.path:
            shard_snapshot.prove(self.data, base.details, where=self.where)

    def hint(self) -> Description:
        hint = version_hint.decode(self.data)
        if hint is None:
            left = salvage.json_text(self.data)
            return Description("version hint", self.where, left, (f"it is no hint [{self.where}]",))
        return Description("version hint", self.where, plain(hint))

    def json(self, kind: str) -> Description:
        try:
            decoded = _DECODERS[kind](self.data, where=self.where)
        except CorruptionError as error:
            return Description(kind, self.where, salvage.json_text(self.data), (str(error),))
        return Description(kind, self.where, plain(decoded))


def _table_manifest(store: ObjectStore, path: str) -> Description:
    """Describe the MemWAL index in a manifest of the base table."""
    where = f"{store.uri}/{path}"
    data = store.get(path)
    manifest = TableManifest(0, path, data, where)
    kind = "MemWAL index details"
    try:
        entry = manifest.mem_wal_index()
        if entry is None:
            return Description(kind, where, {}, (f"the table has no MemWAL index [{where}]",))
        facts = {
            "index_id": str(entry.uuid),
            "dataset_version": entry.dataset_version,
            "nbytes": len(entry.details),
        }
        if is_first_form(entry.details):
            facts |= describe.first_details_facts(manifest.decode_first_details(entry))
            return Description("details of the first MemWAL index", where, facts)
        facts |= describe.details_facts(manifest.decode_details(entry))
    except CorruptionError as error:
        return Description(kind, where, {"nbytes": memoryview(data).nbytes}, (str(error),))
    return Description(kind, where, facts)
