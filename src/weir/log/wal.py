"""Reading and appending WAL entries (Lance MemWAL spec, "WAL Entry" and "WAL Replay")."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar
from uuid import UUID

from weir.engine import failpoint
from weir.engine.concurrent_map import concurrent_map
from weir.errors import CorruptionError, ObjectExistsError, ObjectNotFoundError
from weir.format import layout, wal_entry
from weir.format.batch_memory import batch_overhead
from weir.format.field_births import has_marks, stored_at
from weir.format.ipc_framing import StreamSize, measure
from weir.format.log_place import LogPlace
from weir.format.shard_manifest import ShardManifest
from weir.format.snapshot_token import entry_stamp
from weir.format.wal_entry import WalEntry
from weir.format.wal_trailer import TRAILER_BYTES, WalTrailer, read_trailer
from weir.storage.interface import Bytes, ObjectStore

__all__ = ["PositionedEntry", "Wal", "first_unflushed_position", "stored_trailer"]

T = TypeVar("T")

_MAX_READ_AHEAD = 32
_FIRST_READ_AHEAD = 4
"""Entries to request at first if their number is unknown: missing ones cost requests, round trips time."""

_DATA = "data"
"""Where a Lance dataset has its rows; beside are indexes and versions."""

_SIZE_BYTES = 128
"""What the size of an entry counts for in the cache, its key included."""

_NOTHING = StreamSize(0, 0)


@dataclass(frozen=True, slots=True)
class PositionedEntry:
    """A WAL entry and where it stands.

    Parameters
    ----------
    position : int
        The entry's position in its shard's WAL.
    entry : WalEntry
        What it holds.
    """

    position: int
    entry: WalEntry


def first_unflushed_position(manifest: ShardManifest) -> int:
    """Return where replay starts: the position after the last one that a generation covers.

    The spec counts entries from 0 yet starts replay at ``replay_after_wal_entry_position + 1`` with
    a default of 0, so on a shard that has never flushed an entry 0 may still be waiting.
    """
    never_flushed = manifest.current_generation <= 1 and not manifest.flushed_generations
    if manifest.replay_after_wal_entry_position == 0 and never_flushed:
        return 0
    return manifest.replay_after_wal_entry_position + 1


def stored_trailer(store: ObjectStore, path: str) -> WalTrailer | None:
    """Return the trailer of an entry without reading the rest; None if it has none.

    Raises
    ------
    CorruptionError
        It is damaged.
    ObjectNotFoundError
        The entry does not exist.
    """
    end = store.get_range(path, -TRAILER_BYTES, TRAILER_BYTES)
    return read_trailer(end, where=f"{store.uri}/{path}")


class Wal:
    """The write-ahead log of one shard.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    shard_id : UUID
        The shard.
    namespace : str
        Identity of the table, under which decoded entries are cached for this process.
    """

    def __init__(self, store: ObjectStore, shard_id: UUID, *, namespace: str) -> None:
        self._store = store
        self._shard_id = shard_id
        self._namespace = namespace
        self._cache = store.engine.cache
        # None until an entry has been seen; and whether the one before an absent one was looked for.
        self._spec_suffix: bool | None = None
        self._looked_back = False

    def _key(self, position: int) -> tuple[str, str, int, int]:
        # The number, because Python takes longer to hash an id.
        return ("wal", self._namespace, self._shard_id.int, position)

    def where(self, position: int) -> str:
        """Return the location of an entry, for messages."""
        return f"{self._store.uri}/{layout.wal_path(self._shard_id, position)} (position {position})"

    def place(self, position: int) -> LogPlace:
        """Return the position of an entry, as recorded in it."""
        return LogPlace(self._shard_id, position)

    def append(self, position: int, data: Sequence[Bytes]) -> None:
        """Publish an encoded entry at ``position``: one round trip, durable on return.

        Raises
        ------
        ObjectExistsError
            If the position is taken.
        """
        if failpoint.actions:
            failpoint.reach("wal.before_append")
        self._store.put_if_absent(layout.wal_path(self._shard_id, position), data)
        if failpoint.actions:
            failpoint.reach("wal.after_append")

    def remember(self, position: int, entry: WalEntry, held_bytes: int | None = None) -> None:
        """Cache an entry known to be at ``position``, so that readers here need not load it."""
        if held_bytes is None:
            # Overhead counts too: for small entries it is most of their memory.
            held_bytes = entry.nbytes + batch_overhead(entry.schema) * max(len(entry.batches), 1)
        self._cache.put(self._key(position), entry, held_bytes)

    def forget(self, positions: Iterable[int]) -> None:
        """Drop entries from the cache whose rows are now in a generation, which readers use."""
        self._cache.discard(map(self._key, positions))

    def read(self, position: int, *, remember: bool = True) -> WalEntry | None:
        """Return the entry at ``position``, or None if there is none.

        Parameters
        ----------
        position : int
            The position.
        remember : bool, default True
            Whether to cache it for later reads. One-time reads should not evict entries that are read again.

        Raises
        ------
        CorruptionError
            If its checksum or stream is broken, or it was appended at another place; the message names
            path and position.
        """
        cached = self._cache.get(self._key(position))
        if isinstance(cached, WalEntry):
            return cached
        entry = self._load(position, ".arrow")
        if entry is not None:
            self._spec_suffix = False
        else:
            entry = self._load_spec_suffix(position)
        if entry is not None and remember:
            self.remember(position, entry)
        return entry

    def _load_spec_suffix(self, position: int) -> WalEntry | None:
        """Return the entry at a position where none has the name that writers use."""
        if self._is_never_spec_suffix(position):
            return None
        # The spec's text names entries `.lance`, its example `.arrow`. No writer mixes them
        # within a run, so the first entry found settles what a missing one is called.
        entry = self._load(position, ".lance")
        if entry is not None:
            self._spec_suffix = True
        return entry

    def remembers(self, position: int) -> bool:
        """Whether an entry is in the cache of this process."""
        return self._cache.get(self._key(position)) is not None

    def stands(self, position: int, entry: WalEntry) -> bool:
        """Whether an entry read earlier is still what is at its position, according to the store."""
        stored = self._load(position, ".lance" if self._spec_suffix else ".arrow")
        if stored is None:
            return False
        if entry.header.write_id is not None:
            return stored.header.write_id == entry.header.write_id
        return stored.header == entry.header and stored.num_rows == entry.num_rows

    def forget_another_history(self, manifest: ShardManifest) -> None:
        """Drop remembered entries that no generation covers, if a backup was put in the place of the table.

        Asks the store for the last of them, if there is one; where that stands, so do those before it.
        """
        start = max(first_unflushed_position(manifest), 1)
        end, last = start, None
        while (entry := self._remembered(end)) is not None:
            end, last = end + 1, entry
        if last is not None and not self.stands(end - 1, last):
            self.forget(range(start, end))
            self._cache.discard(map(self._size_key, range(start, end)))

    def _is_never_spec_suffix(self, position: int) -> bool:
        """Whether the entry at a position, absent under one name, need not be looked for under the other.

        A log without a tail has no entry to check. The previous one may still exist: reading it once saves a
        check at every later read.
        """
        if self._spec_suffix is None and not self._looked_back and position > 0:
            self._looked_back = True
            if self._store.head(layout.wal_path(self._shard_id, position - 1)) is not None:
                self._spec_suffix = False
        return self._spec_suffix is False

    def is_empty(self) -> bool:
        """Whether nothing was ever appended, or nothing is left. Takes as long as the log is."""
        return not self._store.list(layout.wal_directory(self._shard_id))

    def exists(self, position: int) -> bool:
        """Whether there is an entry at ``position``; nothing of it is read."""
        if self._cache.get(self._key(position)) is not None:
            return True
        if self._store.head(layout.wal_path(self._shard_id, position, ".arrow")) is not None:
            self._spec_suffix = False
            return True
        if self._is_never_spec_suffix(position):
            return False
        return self._store.head(layout.wal_path(self._shard_id, position, ".lance")) is not None

    def stamp(self, position: int) -> bytes | None:
        """Return what a token has of the entry at a position, or None if there is no entry.

        Takes as many requests as :meth:`exists`.
        """
        cached = self._remembered(position)
        return self.stored_stamp(position) if cached is None else entry_stamp(cached.header.write_id)

    def stored_stamp(self, position: int) -> bytes | None:
        """As :meth:`stamp`, of what is stored, whatever this process remembers."""
        for suffix in layout.WAL_SUFFIXES:
            if suffix != ".arrow" and self._is_never_spec_suffix(position):
                break
            path = layout.wal_path(self._shard_id, position, suffix)
            try:
                trailer = stored_trailer(self._store, path)
            except ObjectNotFoundError:
                continue
            except CorruptionError:
                return b""  # whoever reads the entry says so
            self._spec_suffix = suffix == ".lance"
            return b"" if trailer is None else entry_stamp(trailer.write_id)
        return None

    def _load(self, position: int, suffix: str) -> WalEntry | None:
        path = layout.wal_path(self._shard_id, position, suffix)
        try:
            data = self._store.get(path)
        except ObjectNotFoundError:
            return None
        where = f"{self._store.uri}/{path} (position {position})"
        entry = wal_entry.decode(data, where=where, place=self.place(position))
        is_ours = entry.header.write_id is not None
        return entry if is_ours or not entry.num_rows or has_marks(entry.schema) else self._dated(entry, path)

    def _dated(self, entry: WalEntry, path: str) -> WalEntry:
        """Return an entry of the library, which has columns without a mark, with the time of its storage."""
        meta = self._store.head(path)
        return entry if meta is None else replace(entry, schema=stored_at(entry.schema, meta.last_modified))

    def read_tail(self, manifest: ShardManifest, *, reached: int = 0) -> Iterator[PositionedEntry]:
        """Yield, in order, the entries that no generation of ``manifest`` covers.

        Parameters
        ----------
        manifest : ShardManifest
            The shard's manifest.
        reached : int, default 0
            A position that the log has reached: on object stores, entries up to it are requested in the first
            wave.
        """
        start = first_unflushed_position(manifest)
        end = max(start, 1) + 1
        if not self._store.is_local:
            first = max(start, 1) + _FIRST_READ_AHEAD
            end = min(max(first, reached + 2), start + _MAX_READ_AHEAD)
        positions = range(start, end)
        before = self._remembered(start - 1)
        for position, entry in zip(positions, self._first(positions), strict=True):
            found = self._load_spec_suffix(position) if entry is None else entry
            if found is not None:
                self.refuse_stray(before, found, position)
                before = found
                self.remember(position, found)
                yield PositionedEntry(position, found)
            elif position > 0:
                return
        yield from self._read_after(before, end, ahead=1 if self._store.is_local else len(positions))

    def _first(self, positions: range) -> list[WalEntry | None]:
        """Return the entries at some positions under the name writers use, and learn whether they use it."""

        def ask(position: int) -> WalEntry | None:
            if position < positions.start:
                self._is_never_spec_suffix(positions.start)
                return None
            cached = self._cache.get(self._key(position))
            if isinstance(cached, WalEntry):
                return cached  # under whichever name it was found
            entry = self._load(position, ".arrow")
            if entry is not None:
                self._spec_suffix = False
            return entry

        # The name of the entry before the first shows what an absent one would be called.
        before = [] if self._store.is_local else [positions.start - 1]
        return self._many([*before, *positions], ask)[len(before) :]

    def read_from(
        self, position: int, last: int | None = None, *, remember: bool = True
    ) -> Iterator[PositionedEntry]:
        """Yield entries from ``position`` on, up to ``last`` if it is given, until one does not exist.

        When nothing new is there this costs one round trip. On object stores entries are read
        ahead, more at a time the longer the run is, so that a long tail is not one round trip
        after the other.

        Raises
        ------
        CorruptionError
            If an entry is malformed, or not of this history of the log.
        """
        return self._read_after(self._remembered(position - 1), position, last, remember=remember)

    def _read_after(
        self,
        before: WalEntry | None,
        position: int,
        last: int | None = None,
        *,
        remember: bool = True,
        ahead: int = 1,
    ) -> Iterator[PositionedEntry]:
        for at, entry in self._ahead(position, last, partial(self.read, remember=remember), ahead):
            self.refuse_stray(before, entry, at)
            before = entry
            yield PositionedEntry(at, entry)

    def refuse_stray(self, before: WalEntry | None, entry: WalEntry, position: int) -> None:
        """Refuse an entry that cannot follow the one before it.

        Within one history, the predecessor's claim has stopped any writer of such an entry. A writer that
        continues while the table is replaced by a backup writes far beyond the log's new end, which the log
        eventually reaches.

        Raises
        ------
        CorruptionError
            It cannot.
        """
        if before is not None and not entry.header.may_follow(before.header):
            # Once it is moved aside, another entry may be there.
            self.forget((position,))
            raise CorruptionError(
                "the WAL entry comes from a writer that was fenced earlier: it cannot follow the one before "
                "it",
                where=self.where(position),
                hint="A backup was restored while that writer had the table open. What it wrote after that "
                "does not count: weir repair sets it aside",
            )

    def _remembered(self, position: int) -> WalEntry | None:
        cached = self._cache.get(self._key(position))
        return cached if isinstance(cached, WalEntry) else None

    def measure_from(self, position: int, last: int) -> Iterator[tuple[int, StreamSize]]:
        """Yield positions from ``position`` to ``last``, each with its number of rows and bytes.

        These are the rows of the entry, or those of the generations that it announces; without rows there are
        no bytes. Ends at the first missing entry. For an uncached entry only the trailer is read, ahead as in
        :meth:`read_from`; without a trailer also some kilobytes.

        Raises
        ------
        CorruptionError
            If an entry is malformed.
        """
        yield from self._ahead(position, last, self._measure)

    def _measure(self, position: int) -> StreamSize | None:
        key = self._size_key(position)
        known = self._cache.get(key)
        if isinstance(known, StreamSize):
            return known
        cached = self._cache.get(self._key(position))
        entry = cached if isinstance(cached, WalEntry) else None
        size = self._measure_stored(position) if entry is None else _size(entry, entry.num_rows, entry.nbytes)
        if size is not None and not size.rows:
            # It is small, and may announce rows that were never in the log.
            entry = entry or self.read(position, remember=False)
            size = _NOTHING if entry is None else self._measure_published(entry)
        if size is not None:
            self._cache.put(key, size, _SIZE_BYTES)
        return size

    def _size_key(self, position: int) -> tuple[Hashable, ...]:
        return ("wal size", *self._key(position)[1:])

    def _measure_stored(self, position: int) -> StreamSize | None:
        for suffix in layout.WAL_SUFFIXES:
            path = layout.wal_path(self._shard_id, position, suffix)
            try:
                trailer = stored_trailer(self._store, path)
                if trailer is not None:
                    return StreamSize(trailer.rows, trailer.nbytes, entry_stamp(trailer.write_id))
                return measure(partial(self._store.get_range, path), where=self.where(position))
            except ObjectNotFoundError:
                continue
        return None

    def _measure_published(self, entry: WalEntry) -> StreamSize:
        files = (
            file
            for name in entry.header.published
            for file in self._store.list(f"{layout.generation_path(self._shard_id, name)}/{_DATA}")
        )
        return _size(entry, entry.header.published_rows, sum(file.size for file in files))

    def _ahead(
        self, position: int, last: int | None, ask: Callable[[int], T | None], ahead: int = 1
    ) -> Iterator[tuple[int, T]]:
        """Yield the known facts of entries from ``position`` on, up to the first unknown one."""
        while last is None or position <= last:
            end = position + ahead
            positions = range(position, end if last is None else min(end, last + 1))
            for at, found in zip(positions, self._many(positions, ask), strict=True):
                if found is None:
                    return
                yield at, found
            position += ahead
            if not self._store.is_local:
                ahead = min(ahead * 2, _MAX_READ_AHEAD)

    def _many(self, positions: Sequence[int], ask: Callable[[int], T | None]) -> list[T | None]:
        return list(concurrent_map(ask, positions, is_local=self._store.is_local, engine=self._store.engine))

    def append_or_read(self, position: int, data: Sequence[Bytes]) -> WalEntry | None:
        """Append, or return the entry that holds the position already.

        Returns
        -------
        WalEntry or None
            None when the append went through.
        """
        try:
            self.append(position, data)
        except ObjectExistsError:
            found = self._load(position, ".arrow")
            if found is None:
                raise
            return found
        return None


def _size(entry: WalEntry, rows: int, nbytes: int) -> StreamSize:
    return StreamSize(rows, nbytes, entry_stamp(entry.header.write_id))
