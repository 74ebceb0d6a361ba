"""The base table, pinned at a version: what readers, mergers and services hold."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from typing import Any, TypeVar
from uuid import UUID

import lance
import pyarrow as pa

from weir.base.column_births import ColumnBirths, births_of_columns
from weir.base.dataset import (
    checked_out,
    damaged_manifest,
    manifest_of,
    newest_sound,
    no_dataset,
    open_dataset,
    open_newest,
    open_version,
    primary_key_of,
)
from weir.base.dataset_fields import marks_of, row_schema
from weir.base.deleted_rows import refuse_damaged_deletion_files
from weir.base.library_errors import LIBRARY_ERRORS, LibraryFailure, classify, is_panic, storage_failure
from weir.base.library_session import LibrarySession
from weir.base.lineage import begin_another, lineage_of, lineages, namespace_of
from weir.base.manifest import VERSIONS, TableManifest, read_manifest
from weir.base.predecessor import restored_meanwhile
from weir.base.torn_versions import TornVersion, set_aside, what_is_torn
from weir.engine.cache import Lifetime
from weir.engine.concurrent_map import Wave, ask_both
from weir.engine.context import EngineContext
from weir.errors import (
    CorruptionError,
    FencedError,
    FirstIndexError,
    ObjectNotFoundError,
    SchemaError,
    SnapshotExpiredError,
    StorageError,
    TableNotFoundError,
    UnknownFeatureError,
    WeirError,
)
from weir.format import append_only, expiry, merge_engine, recorded_key
from weir.format.append_only import APPEND_ONLY, AppendOnly
from weir.format.expiry import EXPIRY, Expiry
from weir.format.features import KNOWN_FEATURES
from weir.format.field_births import BeforeMarks, Births, births_of, unmarked_in, without_births
from weir.format.field_ids import field_id, fingerprint, without_field_ids
from weir.format.index_details import IndexDetails, ShardSpec
from weir.format.merge_engine import MERGE_ENGINE, MergeEngine
from weir.format.recorded_columns import sources_there
from weir.format.recorded_key import PRIMARY_KEY
from weir.format.resolution import Resolution, resolve
from weir.format.table_manifest import made_by_one_transaction
from weir.format.wal_entry import TOMBSTONE
from weir.storage.interface import ObjectStore

__all__ = ["DROPPED", "PLACE", "TABLE_ID", "BaseTable"]

TABLE_ID = "weir.table_id"
"""Key among the writer defaults of the MemWAL index under which a table's own id is kept."""

DROPPED = "weir.dropped"
"""Its key among them; the value says since when the table is being removed."""

PLACE = "weir.place"
"""Key among them under which it is kept where the table was when it got that id: a copy is elsewhere."""

_Rule = TypeVar("_Rule")


class BaseTable:
    """The Lance base table of a Weir table, at one version. Immutable, thread-safe, picklable.

    Reading a table while it is being merged and collected: read the shards first and open the base table
    after them. What they do not show because it was collected is then in the base; what the base has and
    they do not know of shows as merge progress beyond them, and they are read again.

    Examples
    --------
    >>> import tempfile, pyarrow as pa
    >>> from weir.base.create import create_base_table
    >>> from weir.storage.local import LocalStore
    >>> store = LocalStore(tempfile.mkdtemp() + "/flights", fsync=False)
    >>> created = create_base_table(store, pa.schema([("id", pa.int64()), ("delay", pa.float32())]), ("id",))
    >>> base = BaseTable.open(store)
    >>> base.primary_key, base.dataset.count_rows(), base.details.merged_generations
    (('id',), 0, ())
    >>> base.latest() is base
    True
    """

    __slots__ = (
        "_append_only",
        "_births",
        "_columns",
        "_dataset",
        "_deletions_are_sound",
        "_details",
        "_expiry",
        "_field_ids",
        "_followed_by",
        "_history",
        "_index_id",
        "_is_made_here",
        "_lifetime",
        "_lineage",
        "_looked_at",
        "_manifest_path",
        "_marks",
        "_merge_engine",
        "_namespace",
        "_newest_under",
        "_primary_key",
        "_row_schema",
        "_said",
        "_schema",
        "_segment_lifetimes",
        "_session",
        "_sources",
        "_store",
        "_torn",
        "_version",
        "_version_identity",
    )

    def __init__(
        self,
        store: ObjectStore,
        dataset: lance.LanceDataset,
        details: IndexDetails,
        primary_key: tuple[str, ...],
        index_id: UUID,
        version_identity: bytes,
        torn: tuple[TornVersion, ...] = (),
        manifest: TableManifest | None = None,
        session: LibrarySession | None = None,
    ) -> None:
        self._store = store
        self._session = session or LibrarySession(frozenset())
        self._version_identity = version_identity
        self._lifetime: Lifetime | None = None
        self._segment_lifetimes: Mapping[str, Lifetime] = {}
        self._torn = torn
        self._index_id = index_id
        self._dataset = dataset
        self._details = details
        self._primary_key = primary_key
        # Pinned, so neither changes; the library recreates them at every call.
        self._schema = without_births(dataset.schema)
        self._field_ids: Mapping[str, int] | None = None
        self._sources: tuple[ShardSpec, Mapping[str, int]] | None = None
        # When it was committed and what it holds: another version of this number says something else.
        self._said: Mapping[str, Any] = dataset.get_version()
        self._version: int = self._said["version"]
        self._looked_at = Wave()
        self._manifest_path = None if manifest is None or torn else manifest.path
        # The stamp of the files that say so, when this was last found to be the newest version.
        self._newest_under: Hashable | None = None
        self._followed_by: Mapping[str, Any] | None = None
        self._history = _history(details, store)
        self._lineage = lineage_of(self._history)
        self._namespace = namespace_of(self._history)
        self._marks = marks_of(dataset)
        known = ColumnBirths(self._marks)
        if manifest is not None:
            known = births_of_columns(store, self._namespace, manifest, self._marks)
        self._births = known.births
        self._row_schema = row_schema(dataset, known.births, known.before)
        self._merge_engine = self._recorded(MERGE_ENGINE, merge_engine.decode)
        self._append_only = self._recorded(APPEND_ONLY, append_only.decode)
        self._expiry = self._recorded(EXPIRY, expiry.decode)
        self._refuse_another_key()
        self._columns: Resolution | None = None
        self._deletions_are_sound = False
        self._is_made_here = False

    def under(
        self, row_schema: pa.Schema, merge_engine: MergeEngine | None, expiry: Expiry | None
    ) -> BaseTable:
        """Return this version with the columns that the table has at another one.

        For reading the sources of a shard with the columns of another version, on top of this version's rows.
        Its :attr:`dataset` has the columns of its own time: see :attr:`columns`. A pickle of it has its own
        columns again.

        Parameters
        ----------
        row_schema : Schema
            :attr:`row_schema` of the other version.
        merge_engine, expiry
            Those of the other version.
        """
        if fingerprint(row_schema) == fingerprint(self._row_schema):
            return self
        other = object.__new__(BaseTable)
        for name in BaseTable.__slots__:
            setattr(other, name, getattr(self, name))
        shown = without_field_ids(row_schema)
        other._schema = shown.remove(shown.get_field_index(TOMBSTONE))
        other._columns = resolve(self._row_schema, row_schema)
        other._row_schema = row_schema
        other._merge_engine = merge_engine
        other._expiry = expiry
        return other

    @classmethod
    def open(cls, store: ObjectStore, *, version: int | None = None) -> BaseTable:
        """Open the base table in a store.

        Parameters
        ----------
        store : ObjectStore
            The table's store.
        version : int, optional
            The version to pin. Default: the latest that a loss of power has not torn.

        Raises
        ------
        TableNotFoundError
            There is no Lance dataset, or one without a MemWAL index; the hint says what to do.
        SnapshotExpiredError
            The requested version no longer exists.
        SchemaError
            The table has a MemWAL index and no primary key.
        CorruptionError
            The table's manifest cannot be decoded.
        UnknownFeatureError
            The table uses a feature that this version of Weir does not know.
        """
        if version is not None:
            return cls._pinned(store, open_dataset(store, version=version))
        try:
            dataset, manifest = open_newest(store)
        except (TableNotFoundError, CorruptionError, StorageError, SnapshotExpiredError) as error:
            # A manifest of zeros is no error for the library: it reads it as version 0. And if the version
            # that it has listed is set aside before it is read, it reports that there is no table.
            return cls._sound(store, error)
        if what_is_torn(store, manifest) is not None:
            return cls._sound(store, None)
        _notice_another_history(store, manifest)
        return cls._pinned(store, dataset, manifest)

    @classmethod
    def of_published(cls, store: ObjectStore, manifest: TableManifest) -> BaseTable:
        """Open a version that this process has just published. One request: it is not read again.

        The library makes sure that it is there, and reads the list of its indexes once it needs them.

        Raises
        ------
        SnapshotExpiredError
            It no longer exists.
        """
        base = cls._pinned(store, open_version(store, manifest.version, manifest), manifest)
        base._is_made_here = True
        return base

    @classmethod
    def _sound(cls, store: ObjectStore, error: WeirError | None) -> BaseTable:
        """Open the newest version that a loss of power has left whole.

        If the newest one is not torn, its original error is raised.
        """
        found = newest_sound(store, error)
        _notice_another_history(store, found.manifest)
        dataset = open_version(store, found.manifest.version)
        return cls._pinned(store, dataset, found.manifest, found.torn)

    @classmethod
    def _pinned(
        cls,
        store: ObjectStore,
        dataset: lance.LanceDataset,
        manifest: TableManifest | None = None,
        torn: tuple[TornVersion, ...] = (),
        session: LibrarySession | None = None,
    ) -> BaseTable:
        if manifest is None:
            manifest = manifest_of(store, dataset)
        entry = manifest.mem_wal_index()
        if entry is None:
            raise TableNotFoundError(
                "there is a Lance dataset, and it has no MemWAL index",
                where=store.uri,
                hint="To write to it through Weir, adopt it: weir.adopt",
            )
        details = manifest.decode_details(entry)
        primary_key = primary_key_of(dataset)
        if not primary_key and not {APPEND_ONLY, PRIMARY_KEY} & details.writer_config_defaults.keys():
            raise SchemaError(
                "the table has no primary key, so its rows cannot be replaced or deleted",
                where=store.uri,
                hint="If it had one that was dropped, restore the last version of the dataset with it: "
                "LanceDataset.restore",
            )
        if DROPPED in details.writer_config_defaults:
            raise TableNotFoundError(
                f"the table is being removed, since {details.writer_config_defaults[DROPPED][:40]}",
                where=store.uri,
                hint="Run weir drop again to remove what is left of it",
            )
        _refuse_unknown_features(details, store)
        segments = manifest.index_segments()
        if session is None:
            session = LibrarySession(segments)
        session.meet(segments)
        identity = manifest.identity
        try:
            base = cls(store, dataset, details, primary_key, entry.uuid, identity, torn, manifest, session)
        except BaseException as error:
            # The library makes the schema only when it is asked for it.
            if not is_panic(error):
                raise
            raise damaged_manifest(store, error) from error
        cache = store.engine.cache
        base._lifetime = cache.lifetime(("version", base.namespace, base.version_key))
        base._segment_lifetimes = {
            str(uuid): cache.lifetime(("segment", base.namespace, uuid)) for uuid in segments
        }
        # The last version read of each table, which commits build on. It outlives table objects, so that a
        # table opened for every call finds what the previous call has read.
        last = (base.version_key, manifest, Wave(), base._lifetime, base._segment_lifetimes)
        cache.put(base._manifest_key, last, manifest.nbytes)
        return base

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle location and version; the table is reopened on the other side."""
        return (_reopen, (self._store, self.version, self._version_identity))

    def __repr__(self) -> str:
        """Show where the table is and its version."""
        return f"BaseTable({self.uri!r}, version={self.version})"

    @property
    def store(self) -> ObjectStore:
        """The table's store."""
        return self._store

    @property
    def engine(self) -> EngineContext:
        """What the table shares with others of this process."""
        return self._store.engine

    @property
    def uri(self) -> str:
        """Location of the table."""
        return self._store.uri

    @property
    def identity(self) -> str:
        """Unique identity of this table, different from any earlier or later table at the same location.

        A table created by the library has no id; its location is used instead.
        """
        return _identity(self._details, self._store)

    @property
    def has_id(self) -> bool:
        """Whether the table has an id: one created by the library has none."""
        return TABLE_ID in self._details.writer_config_defaults

    @property
    def has_place(self) -> bool:
        """Whether it is recorded where the table was made."""
        return PLACE in self._details.writer_config_defaults

    @property
    def is_made_here(self) -> bool:
        """Whether it is the very version that :meth:`of_published` has opened."""
        return self._is_made_here

    @property
    def is_at_its_place(self) -> bool:
        """Whether the table is where it was made; a copy, or a table that was moved, is not."""
        return self._details.writer_config_defaults.get(PLACE) == self._store.uri

    @property
    def namespace(self) -> str:
        """Identifies the objects of this table in this process, for caches.

        A copy of the table has its identity, and diverges from there.
        """
        return self._namespace

    def leave_history(self) -> None:
        """Forget what this process knows of the table: a backup was restored in its place."""
        begin_another(self._history, self._lineage)

    def begin_anew(self) -> BaseTable:
        """Open the table without cached knowledge: a backup was restored in its place."""
        self.leave_history()
        return BaseTable.open(self._store)

    @property
    def is_former(self) -> bool:
        """Whether :meth:`begin_anew` was called for the table since this version was opened."""
        return lineages.get(self._history, 0) != self._lineage

    @property
    def version(self) -> int:
        """The version this handle is pinned at."""
        return self._version

    @property
    def version_identity(self) -> bytes:
        """The identity of this version, different from any other with the same number: 8 bytes.

        Numbers come back where a backup has taken the place of a table.
        """
        return self._version_identity

    @property
    def version_key(self) -> tuple[int, bytes]:
        """The version number with its identity, for cache keys."""
        return self._version, self._version_identity

    @property
    def lifetime(self) -> Lifetime | None:
        """How long the cache keeps what was read from this version: while referenced, or read last."""
        return self._lifetime

    def segment_lifetime(self, uuid: str) -> Lifetime | None:
        """Return how long the cache keeps what was read from an index segment: while a version has it."""
        return self._segment_lifetimes.get(uuid)

    @property
    def _manifest_key(self) -> Hashable:
        return _manifest_key(self._namespace)

    def manifest(self) -> TableManifest:
        """Return the manifest of this version. Nothing is read if it was just opened.

        Raises
        ------
        ObjectNotFoundError
            The version has been cleaned up, or another one now has its number.
        """
        known = self.engine.cache.get(self._manifest_key)
        # A backup may have been restored in place of the table, and have reached the same number.
        if known is not None and known[0] == self.version_key and known[2].was_short():
            found: TableManifest = known[1]
            return found
        found = read_manifest(self._store, self._version)
        if found.identity != self._version_identity:
            raise ObjectNotFoundError("another version of the table has this number now", where=found.where)
        return found

    @property
    def torn(self) -> tuple[TornVersion, ...]:
        """Torn versions above this one, as far as this handle had to find out."""
        return self._torn

    @property
    def dataset(self) -> lance.LanceDataset:
        """The Lance dataset at that version. Only for reading; changes need a copy."""
        return self._dataset

    def refuse_damaged_deletions(self) -> None:
        """Make sure that no deleted or replaced row comes back: asked before rows are read.

        Raises
        ------
        CorruptionError
            A deletion file is damaged. It is named.
        """
        if not self._deletions_are_sound:
            refuse_damaged_deletion_files(self._store, self._version)
            self._deletions_are_sound = True

    @property
    def schema(self) -> pa.Schema:
        """Columns of the table, with Lance's field metadata and without the marks of their births."""
        return self._schema

    @property
    def row_schema(self) -> pa.Schema:
        """Columns of the table and ``_tombstone``, with Lance's field ids, as log entries have them.

        The same object for all versions with the same columns.
        """
        return self._row_schema

    @property
    def columns(self) -> Resolution | None:
        """How :attr:`schema` is made of the columns of :attr:`dataset`; None where they are the same."""
        return self._columns

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Primary-key columns, in key order; none where rows are only added."""
        return self._primary_key

    @property
    def field_ids(self) -> Mapping[str, int]:
        """Lance field id of every top-level column, by name."""
        if self._field_ids is None:
            self._field_ids = {field.name(): field.id() for field in self._dataset.lance_schema.fields()}
        return self._field_ids

    def _recorded(self, key: str, decode: Callable[..., _Rule]) -> _Rule | None:
        """Return a rule that is among the writer defaults, if it is."""
        text = self._details.writer_config_defaults.get(key)
        return None if text is None else decode(text, self.field_ids, self._births, where=self.uri)

    def rules_under(self, row_schema: pa.Schema) -> tuple[MergeEngine | None, Expiry | None]:
        """Return :attr:`merge_engine` and :attr:`expiry` by the names that columns have at another version.

        Parameters
        ----------
        row_schema : Schema
            :attr:`row_schema` of the other version. If it has not the column by which rows expire, none do.

        Raises
        ------
        SchemaError
            If it has not a column by which the merge engine puts versions in order.
        """
        ids = {field.name: number for field in row_schema if (number := field_id(field)) is not None}
        births, defaults = births_of(row_schema), self._details.writer_config_defaults
        engine, expires = defaults.get(MERGE_ENGINE), None
        if EXPIRY in defaults:
            with suppress(SchemaError):
                expires = expiry.decode(defaults[EXPIRY], ids, births, where=self.uri)
        return (
            None if engine is None else merge_engine.decode(engine, ids, births, where=self.uri),
            expires,
        )

    @property
    def has_recorded_key(self) -> bool:
        """Whether the columns of the key are recorded, so that it is noticed if one of them is dropped."""
        return PRIMARY_KEY in self._details.writer_config_defaults

    def _refuse_another_key(self) -> None:
        recorded = self._recorded(PRIMARY_KEY, recorded_key.decode)
        if recorded is not None and recorded != self._primary_key:
            raise SchemaError(
                f"the primary key of the table is ({', '.join(recorded)}), and the columns that are marked "
                f"as its key are ({', '.join(self._primary_key)})",
                where=self.uri,
                hint="Restore the last version of the dataset with that key: LanceDataset.restore",
            )

    def columns_of(self, spec: ShardSpec) -> Mapping[str, int]:
        """Return the field ids of the columns that a shard spec may mean, by name.

        A later column that reuses the id of one in the spec is not among them.
        """
        if self._sources is None or self._sources[0] is not spec:
            self._sources = (spec, sources_there(spec, self.field_ids, self._births))
        return self._sources[1]

    @property
    def births(self) -> Births:
        """Since when each column and each part of one is in the table (:mod:`weir.format.field_births`)."""
        return self._births

    @property
    def before_marks(self) -> BeforeMarks:
        """The known history of columns and their parts before they were marked."""
        return unmarked_in(self._row_schema)

    @property
    def marks(self) -> Births:
        """The births that columns and their parts are marked with; None where there is no mark."""
        return self._marks

    @property
    def merge_engine(self) -> MergeEngine | None:
        """How the versions of a key are combined; None where the last row wins, as in library tables."""
        return self._merge_engine

    @property
    def append_only(self) -> AppendOnly | None:
        """How rows are only added; None where they are replaced by key."""
        return self._append_only

    @property
    def sort_by(self) -> tuple[str, ...]:
        """The columns by which the rows of generations and fragments are sorted; empty for most tables."""
        return () if self._append_only is None else self._append_only.sort_by

    @property
    def expiry(self) -> Expiry | None:
        """When rows expire; None if they do not."""
        return self._expiry

    @property
    def details(self) -> IndexDetails:
        """Details of the MemWAL index: shard specs, merge progress, index catch-up."""
        return self._details

    @property
    def index_id(self) -> UUID:
        """Id of the MemWAL index at this version; another one after every change of its details."""
        return self._index_id

    def latest(self) -> BaseTable:
        """Return the newest version of the table: this very handle if nothing has been committed.

        If a backup was put in the place of the table, this handle :attr:`is_former` from then on, and what is
        returned has another :attr:`namespace`, under which nothing is remembered yet.

        Raises
        ------
        TableNotFoundError
            The table is gone.
        CorruptionError
            Its manifest cannot be decoded, and no older version can be read in its place.
        """
        if self.is_former:
            return BaseTable.open(self._store)
        # Before the library looks, so that what is committed meanwhile changes it.
        stamp = self._stamp()
        if stamp is not None and stamp == self._newest_under:
            return self
        wave = Wave()
        dataset = copy.copy(self._dataset)
        try:
            _check_out_latest(self._store, dataset)
        except (TableNotFoundError, CorruptionError, StorageError) as error:
            return self._latest_sound(error)
        said = dataset.get_version()
        if said == self._said:
            self._looked_at = wave
            self._newest_under = stamp
            return self if not self._torn else BaseTable._pinned(self._store, dataset, session=self._session)
        try:
            manifest, is_followed = ask_both(
                lambda: self._known_manifest(dataset) or manifest_of(self._store, dataset),
                lambda: self._is_followed_by(said),
                is_local=self._store.is_local,
                engine=self.engine,
            )
        except SnapshotExpiredError as error:
            return self._latest_sound(error)
        if what_is_torn(self._store, manifest) is not None:
            return self._latest_sound(None)
        if not is_followed:
            return self.begin_anew()
        if self._session.is_stale_at(manifest.index_segments()):
            return BaseTable.open(self._store)
        return BaseTable._pinned(self._store, dataset, manifest, session=self._session)

    def _stamp(self) -> Hashable | None:
        """Return what is another value once there is another version, or another one of this number.

        None if that is not certain: always on an object store, and next to versions that are torn.
        """
        files = self.version_files
        return None if files is None else self._store.stamp(*files)

    @property
    def version_files(self) -> tuple[str, str] | None:
        """What changes in the store with another version, or another one of this number; None if unknown."""
        return None if self._manifest_path is None else (VERSIONS, self._manifest_path)

    def _is_followed_by(self, said: Mapping[str, Any]) -> bool:
        """Whether a version comes after this one, so that what is known of the table holds there too.

        Not if this one was set aside, or a backup put in the place of the table: numbers come back. Where
        there are as many again, another version has the number of this one: a request shows it. It is spared
        on an object store if this was the newest version a moment ago: within a second nobody empties a
        bucket, copies another state there, and commits to it as often as before.

        Parameters
        ----------
        said : mapping of str to object
            What the library says of the version.
        """
        if said["version"] <= self._version:
            return False
        if said != self._followed_by and (self._store.is_local or not self._looked_at.was_short()):
            # If it has been cleaned up, nobody can tell.
            with suppress(ObjectNotFoundError):
                if read_manifest(self._store, self._version).identity != self._version_identity:
                    return False
        self._followed_by = said
        return True

    def _known_manifest(self, dataset: lance.LanceDataset) -> TableManifest | None:
        """Return the manifest of a version that the library has just found, where it is known already.

        After a backup was restored in place of the table, another version may have the same number. So it
        must name the same unique transaction as the library's.
        """
        known = None if self._store.is_local else self.engine.cache.get(self._manifest_key)
        if known is None or known[1].version != dataset.version:
            return None
        manifest: TableManifest = known[1]
        # As it travels in a pickle: where, with what, which version, and its manifest.
        found = dataset.__getstate__()[3]  # type: ignore[no-untyped-call]
        return manifest if made_by_one_transaction(manifest.data, found, where=manifest.where) else None

    def after(self, dataset: lance.LanceDataset) -> BaseTable | None:
        """Return the version that a copy of this one's dataset has committed: one request.

        Returns
        -------
        BaseTable or None
            None if :meth:`latest` has to check: on a local disk, and if the version no longer exists.
        """
        if self._store.is_local:
            return None
        try:
            manifest = read_manifest(self._store, dataset.version)
        except ObjectNotFoundError:
            return None
        if self._session.is_stale_at(manifest.index_segments()):
            return None
        return BaseTable._pinned(self._store, dataset, manifest, session=self._session)

    def _latest_sound(self, error: WeirError | None) -> BaseTable:
        found = BaseTable._sound(self._store, error)
        if found.version < self._version or (
            found.version == self._version and found.version_identity != self._version_identity
        ):
            return self.begin_anew()
        return self if (found.version_key, found.torn) == (self.version_key, self._torn) else found

    def latest_to_change(self) -> BaseTable:
        """Return the newest version of the table, to commit on top of it.

        Versions above it that a loss of power has torn are set aside first.

        Raises
        ------
        TableNotFoundError
            The table is gone.
        CorruptionError
            Its manifest cannot be decoded, and no older version can be read in its place.
        """
        base = self.latest()
        if base.torn:
            set_aside(self._store)
            base = base.latest()
        return base

    def refuse_restored(self, newer: BaseTable) -> None:
        """Make sure that what was made for this version is committed above no other table.

        At most two requests, if there was a commit meanwhile.

        Raises
        ------
        ConflictError
            ``newer``, the newest version there is, cannot come after this one: a backup was put in the place
            of the table.
        """
        if newer.version_key == self.version_key:
            return
        if newer.version > self.version:
            try:
                if read_manifest(self._store, self._version).identity == self._version_identity:
                    return
            except ObjectNotFoundError:
                return  # cleaned up
        raise restored_meanwhile(self.uri, self.version)

    def refuse_replaced(self, newer: BaseTable) -> None:
        """Make sure that a writer that was opened for this version writes to no other table. No request.

        Raises
        ------
        FencedError
            Since then the table of ``newer`` has come in its place.
        """
        if newer.identity != self.identity:
            raise FencedError(
                "since the writer was opened, another table was put in the place of the table",
                where=self.uri,
                hint="This write was not accepted; open a new writer to continue",
            )

    def at_version(self, version: int, identity: bytes = b"") -> BaseTable:
        """Return the table as it was at another version.

        Parameters
        ----------
        version : int
            The version.
        identity : bytes, default b""
            What its :attr:`version_identity` begins with; of another version with that number nothing is
            returned.

        Raises
        ------
        SnapshotExpiredError
            The version does not exist, has been cleaned up, or is another one.
        """
        found = self if version == self.version else self._at(version)
        if not found.version_identity.startswith(identity):
            raise SnapshotExpiredError(
                f"version {version} of the table is not the one asked for, which was lost in a power "
                "failure, or replaced by a backup",
                where=self.uri,
                hint="Take a new snapshot of the latest version",
            )
        return found

    def _at(self, version: int) -> BaseTable:
        dataset = checked_out(self._store, self._dataset, version)
        return BaseTable._pinned(self._store, dataset, session=self._session)


def _identity(details: IndexDetails, store: ObjectStore) -> str:
    return details.writer_config_defaults.get(TABLE_ID) or store.uri


def _history(details: IndexDetails, store: ObjectStore) -> str:
    return f"{_identity(details, store)} {store.uri}"


def _manifest_key(namespace: str) -> Hashable:
    return ("table manifest", namespace)


def _notice_another_history(store: ObjectStore, newest: TableManifest) -> None:
    """Follow another history of the table if its newest version does not come after the last one seen here.

    A table that is opened anew has no handle that could compare, and caches outlive handles. At most one
    request, if there was a commit since, and on an object store none if that was seen a moment ago.
    """
    entry = newest.mem_wal_index()
    if entry is None:
        return
    with suppress(FirstIndexError):
        history = _history(newest.decode_details(entry), store)
        lineage = lineage_of(history)
        known = store.engine.cache.get(_manifest_key(namespace_of(history)))
        if known is None or known[0] == (newest.version, newest.identity):
            return
        (version, identity), _, looked_at, *_ = known
        if version < newest.version and not store.is_local and looked_at.was_short():
            return
        try:
            # One that is gone has been cleaned up, unless nothing newer is there.
            follows = read_manifest(store, version).identity == identity
        except ObjectNotFoundError:
            follows = version < newest.version
        if not follows:
            begin_another(history, lineage)


def _refuse_unknown_features(details: IndexDetails, store: ObjectStore) -> None:
    unknown = [name for name in details.features if name not in KNOWN_FEATURES]
    if unknown:
        raise UnknownFeatureError(
            f"the table uses features that this version of Weir does not know: {', '.join(unknown)}",
            where=store.uri,
            hint="Upgrade Weir: a version that knows them wrote the table",
        )


def _reopen(store: ObjectStore, version: int, identity: bytes) -> BaseTable:
    return BaseTable.open(store, version=version).at_version(version, identity)


def _check_out_latest(store: ObjectStore, dataset: lance.LanceDataset) -> None:
    try:
        dataset.checkout_latest()  # type: ignore[no-untyped-call]
    except LIBRARY_ERRORS as error:
        if classify(error) is LibraryFailure.ABSENT:
            raise no_dataset(store) from error
        if classify(error) is LibraryFailure.DAMAGED:
            raise damaged_manifest(store, error) from error
        raise storage_failure(error, "looking for a newer version", where=store.uri) from error
    except BaseException as error:
        if not is_panic(error):
            raise
        raise damaged_manifest(store, error) from error
