"""A version of a table with the first MemWAL index, viewed as a current table.

The rows that are not merged stand in the log of one shard, oldest first, made of what the WALs of the regions
hold. It is not written anywhere: a store shows it in place of the table's own objects. So all readers of a
table read this one, by the same code, and all writers are refused by name.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID, uuid5

import lance
import pyarrow as pa

from weir.base.create import with_key_feature
from weir.base.dataset import open_dataset, primary_key_of
from weir.base.dataset_fields import row_schema
from weir.base.manifest import VERSIONS, TableManifest, read_manifest
from weir.base.publish import as_of_today
from weir.base.schema import all_field_ids
from weir.base.table import BaseTable
from weir.engine.context import EngineContext
from weir.errors import FirstIndexError, ObjectNotFoundError, SchemaError
from weir.first_index.regions import unmerged
from weir.first_index.wal import RegionWal, WalReader, read_entry
from weir.format import first_index_details, layout, shard_manifest, version_hint, wal_entry
from weir.format.first_index_details import FirstIndexDetails
from weir.format.index_details import IndexDetails, ShardSpec
from weir.format.log_place import LogPlace
from weir.format.shard_manifest import ShardManifest
from weir.format.version_hint import VersionHint
from weir.format.wal_header import WalEntryHeader
from weir.sharding.shard_by import ShardBy, unsharded
from weir.sharding.spec import build_spec
from weir.storage.interface import Bytes, ObjectMeta, ObjectStore

__all__ = ["PinnedBase", "RegionView", "base_of", "base_only", "refusal", "regions_of", "take_view"]

_NAMESPACE = UUID("7a6d1d5e-6a0c-4f0f-9a53-1f2f0c1c0b6e")


def refusal(what: str, where: str) -> FirstIndexError:
    """Return the error for what cannot be done to a table with the first MemWAL index."""
    return FirstIndexError(
        f"the table has the first form of the MemWAL index: {what}",
        where=where,
        hint="weir upgrade converts it to the current form, in place or into a copy",
    )


def regions_of(manifest: TableManifest) -> FirstIndexDetails | None:
    """Return the regions of a version; None if its MemWAL index has the current form, or there is none.

    Raises
    ------
    CorruptionError
        The details cannot be decoded.
    """
    entry = manifest.mem_wal_index()
    if entry is None or not first_index_details.is_first_form(entry.details):
        return None
    return manifest.decode_first_details(entry)


@dataclass(frozen=True, slots=True, eq=False)
class RegionView(ObjectStore):
    """The store of a table with the first MemWAL index, as if its index and its logs had the current form.

    Parameters
    ----------
    inner : ObjectStore
        The table's store.
    version : int
        The version it shows.
    details : FirstIndexDetails
        The regions of that version.
    details_of_today : IndexDetails
        The details that its MemWAL index would have in the current form.
    shard_id : UUID
        The shard that has the rows of all regions: another one in every version.
    objects : mapping of str to bytes
        The objects of that shard, by path.
    published_at : datetime
        When the version was published: no row is newer.
    """

    inner: ObjectStore
    version: int
    details: FirstIndexDetails
    details_of_today: IndexDetails
    shard_id: UUID
    objects: Mapping[str, bytes]
    published_at: datetime

    @property
    def uri(self) -> str:
        """Location of the table."""
        return self.inner.uri

    @property
    def storage_options(self) -> Mapping[str, str]:
        """The storage options of the table's store."""
        return self.inner.storage_options

    @property
    def is_local(self) -> bool:
        """Whether the table is on this machine."""
        return self.inner.is_local

    @property
    def engine(self) -> EngineContext:
        """The state shared with other tables."""
        return self.inner.engine

    @property
    def sharing_key(self) -> Hashable:
        """Equal for views of one version."""
        return ("regions", self.inner.sharing_key, self.shard_id)

    @property
    def endpoint(self) -> str:
        """What answers requests."""
        return self.inner.endpoint

    def get(self, path: str) -> Bytes:
        """Return an object: a shard manifest in the current form, or an object of the table."""
        if _is_shown(path):
            if path not in self.objects:
                raise ObjectNotFoundError("there is no such object", where=f"{self.uri}/{path}")
            return self.objects[path]
        data = self.inner.get(path)
        if path.startswith(f"{VERSIONS}/") and path.endswith(".manifest"):
            manifest = TableManifest(0, path, data, f"{self.uri}/{path}")
            if regions_of(manifest) is not None:
                return as_of_today(manifest, self.details_of_today).data
        return data

    @property
    def spec(self) -> ShardSpec:
        """How rows map to shards in the converted table."""
        return self.details_of_today.shard_specs[0]

    def get_range(self, path: str, start: int, length: int) -> Bytes:
        """Return a part of an object."""
        if not _is_shown(path):
            return self.inner.get_range(path, start, length)
        data = bytes(self.get(path))
        begin = max(len(data) + start, 0) if start < 0 else start
        return data[begin : begin + length]

    def head(self, path: str) -> ObjectMeta | None:
        """Return the metadata of an object."""
        if not _is_shown(path):
            return self.inner.head(path)
        data = self.objects.get(path)
        return None if data is None else self._meta(path, data)

    def list(self, prefix: str) -> Sequence[ObjectMeta]:
        """Return every object below a directory, those of the shard in place of any others."""
        listed = [one for one in self.inner.list(prefix) if not _is_shown(one.path)]
        within = f"{prefix}/" if prefix else ""
        shown = [self._meta(path, data) for path, data in self.objects.items() if path.startswith(within)]
        return sorted(listed + shown, key=lambda one: one.path)

    def list_directories(self, prefix: str) -> Sequence[str]:
        """Return the names below a directory that hold objects."""
        within = f"{prefix}/" if prefix else ""
        names = {
            path.removeprefix(within).partition("/")[0] for path in self.objects if path.startswith(within)
        }
        if not _is_shown(f"{within}x"):
            names.update(name for name in self.inner.list_directories(prefix) if name != layout.MEM_WAL)
        return sorted(names)

    def put(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        """Refuse."""
        raise self._refusal()

    def put_if_absent(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        """Refuse."""
        raise self._refusal()

    def compare_and_swap(self, path: str, data: Bytes | Sequence[Bytes], expected: str) -> str:
        """Refuse."""
        raise self._refusal()

    def copy(self, source: str, target: str) -> None:
        """Refuse."""
        raise self._refusal()

    def delete(self, paths: Iterable[str]) -> None:
        """Refuse."""
        raise self._refusal()

    def sync(self, prefix: str) -> None:
        """Do nothing: nothing is written here."""

    def _meta(self, path: str, data: bytes) -> ObjectMeta:
        return ObjectMeta(path, len(data), self.published_at, "1")

    def _refusal(self) -> FirstIndexError:
        return refusal("it is read, and not written", self.uri)


def _is_shown(path: str) -> bool:
    return path == layout.MEM_WAL or path.startswith(f"{layout.MEM_WAL}/")


class PinnedBase(BaseTable):
    """The base table of a view: at its version for good."""

    __slots__ = ()

    def latest(self) -> BaseTable:
        """Return this version, which is all that the view shows."""
        return self

    def latest_to_change(self) -> BaseTable:
        """Refuse."""
        raise refusal("it is read, and not written", self.uri)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as the view and its version."""
        return (_reopen, (self.store, self.version))


def _reopen(store: ObjectStore, version: int) -> BaseTable:
    return PinnedBase.open(store, version=version)


def take_view(
    store: ObjectStore, *, shard_by: Sequence[ShardBy] = (), reader: WalReader | None = None
) -> RegionView | None:
    """Read the regions of the newest version of a table, and return them as a table of the current form.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    shard_by : sequence of ShardBy, default ()
        How rows map to shards in the converted table. Default: one shard.
    reader : WalReader, optional
        Reads the WALs. Default: the form that Weir writes.

    Returns
    -------
    RegionView or None
        The view; None if the MemWAL index is not of the first form.

    Raises
    ------
    CorruptionError
        The details, or an entry that is listed, cannot be read.
    SchemaError
        The table has no primary key.
    """
    reader = reader or RegionWal(store)
    while True:
        dataset = open_dataset(store)
        number = dataset.version
        manifest = read_manifest(store, number)
        details = regions_of(manifest)
        if details is None:
            return None
        today = _details_of_today(store, dataset, shard_by)
        shard_id = uuid5(_NAMESPACE, f"{store.uri} {number} {manifest.identity.hex()}")
        try:
            objects = _shard(reader, details, shard_id, row_schema(dataset), primary_key_of(dataset))
        except Exception:
            # A MemWAL that is merged meanwhile may lose its WAL while it is being read.
            if open_dataset(store).version != number:
                continue
            raise
        published = store.head(manifest.path)
        published_at = datetime.now(UTC) if published is None else published.last_modified
        return RegionView(store, number, details, today, shard_id, objects, published_at)


def base_only(store: ObjectStore) -> RegionView | None:
    """Return a view of the newest version without the rows of the regions, which are not read."""
    dataset = open_dataset(store)
    manifest = read_manifest(store, dataset.version)
    details = regions_of(manifest)
    if details is None:
        return None
    today = _details_of_today(store, dataset, ())
    return RegionView(store, dataset.version, details, today, UUID(int=0), {}, datetime.now(UTC))


def _details_of_today(
    store: ObjectStore, dataset: lance.LanceDataset, shard_by: Sequence[ShardBy]
) -> IndexDetails:
    key = primary_key_of(dataset)
    if not key:
        raise SchemaError(
            "the table has the first form of the MemWAL index and no primary key, which rows of its regions "
            "need to replace those of the base table",
            where=store.uri,
            hint="Name its key: weir upgrade with --primary-key marks the columns permanently",
        )
    fields = tuple(shard_by) or (unsharded(),)
    spec = build_spec(fields, dataset.schema, key, all_field_ids(dataset.lance_schema))
    details = IndexDetails(shard_specs=(spec,), maintain_all_indexes=True)
    return with_key_feature(details, dataset.schema, key)


def _shard(
    reader: WalReader, details: FirstIndexDetails, shard_id: UUID, schema: pa.Schema, key: tuple[str, ...]
) -> Mapping[str, bytes]:
    first = ShardManifest(shard_id, version=1, writer_epoch=1, current_generation=1)
    objects = {
        layout.manifest_path(shard_id, 1): shard_manifest.encode(first),
        layout.version_hint_path(shard_id): version_hint.encode(VersionHint(1)),
    }
    position = 0
    for mem_wal in unmerged(details):
        # An entry that is not listed was never acknowledged: a writer that had lost its MemWAL left it.
        for entry in mem_wal.entries.ascending():
            rows = read_entry(reader, mem_wal, entry, schema, key)
            position += 1
            place = LogPlace(shard_id, position)
            header = WalEntryHeader(1, generation=1, write_id=_write_id(place), place=place)
            encoded = wal_entry.encode(header, rows.schema, rows.to_batches())
            objects[layout.wal_path(shard_id, position)] = b"".join(map(bytes, encoded))
    return objects


def _write_id(place: LogPlace) -> str:
    """Return the write id of an entry, the same in every view of one version."""
    return uuid5(_NAMESPACE, str(place)).hex


def base_of(view: RegionView) -> BaseTable:
    """Return the base table of a view."""
    return PinnedBase.open(view, version=view.version)
