"""Surveying one shard for a garbage collection: one listing, a few manifests, the epochs in its log.

The objects read never change once written, except that another collection may delete some meanwhile; then the
shard is surveyed again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from uuid import UUID

from weir.engine.concurrent_map import concurrent_map
from weir.engine.logs import get_logger
from weir.errors import ConflictError, CorruptionError, InputError, ObjectNotFoundError
from weir.format import layout, wal_entry
from weir.format.shard_manifest import ShardManifest
from weir.log.manifest_store import read_manifest_version
from weir.log.wal import stored_trailer
from weir.maintenance.garbage.state import Coverage, Directory, LogObject, ShardState, coverage_of
from weir.storage.interface import ObjectMeta, ObjectStore

__all__ = ["Survey", "survey_shard"]

_log = get_logger(__name__)
_MAX_ATTEMPTS = 8
_OPENING_BYTES = 64 * 1024
"""How much to read of a log entry without a trailer: enough for a schema of some hundred columns."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The task of looking at a shard. Picklable.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    shard_id : UUID
        The shard.
    merged : int
        Its newest merged generation.
    fences_since : datetime
        Older entries fence no writer, except for the newest fence.
    named : tuple of int, default ()
        Manifest versions that roots name.
    """

    store: ObjectStore
    shard_id: UUID
    merged: int
    fences_since: datetime
    named: tuple[int, ...] = ()


class _MovedError(Exception):
    """Another collection has deleted an object being read."""


def survey_shard(survey: Survey) -> ShardState | None:
    """Look at a shard; return None if it has no manifest.

    Raises
    ------
    CorruptionError
        A shard manifest is broken.
    ConflictError
        Other collections kept deleting objects being read.
    """
    for _ in range(_MAX_ATTEMPTS):
        try:
            return _look(survey)
        except _MovedError:
            continue
    raise ConflictError(
        f"shard {survey.shard_id} kept changing during {_MAX_ATTEMPTS} attempts to inspect it",
        where=survey.store.uri,
        hint="Run fewer garbage collections at once",
    )


def _look(survey: Survey) -> ShardState | None:
    listed = _Listing.of(survey.store.list(layout.shard_directory(survey.shard_id)), survey.shard_id)
    if not listed.manifests:
        return None
    manifests = _Manifests(survey)
    versions = _unbroken_end(sorted(listed.manifests))
    coverage = coverage_of(survey.merged, versions, manifests.read)
    latest = manifests.read(versions[-1])
    return ShardState(
        latest=latest,
        manifests=listed.manifests,
        log=listed.log,
        guards=_Epochs(survey, listed.log).guards(coverage),
        directories=listed.numbered(latest),
        coverage=coverage,
        record=_record(versions, manifests),
        named={version: manifests.read(version) for version in survey.named if version in listed.manifests},
    )


def _record(versions: Sequence[int], manifests: _Manifests) -> ShardManifest | None:
    """Return the record of source progress; None if the newest manifest has it, or none does."""
    if manifests.read(versions[-1]).sources is not None:
        return None
    older = (manifests.read(version) for version in reversed(versions[:-1]))
    return next((manifest for manifest in older if manifest.sources is not None), None)


@dataclass(frozen=True, slots=True)
class _Listing:
    """The objects of a shard, told apart by their names."""

    manifests: dict[int, int] = field(default_factory=dict)
    log: dict[int, LogObject] = field(default_factory=dict)
    directories: dict[str, Directory] = field(default_factory=dict)

    @classmethod
    def of(cls, objects: Sequence[ObjectMeta], shard_id: UUID) -> _Listing:
        """Sort what a listing of the shard's directory returned. It may name an object twice."""
        listing = cls()
        prefix = f"{layout.shard_directory(shard_id)}/"
        for meta in {one.path: one for one in objects}.values():
            first, _, rest = meta.path.removeprefix(prefix).partition("/")
            # Objects with names outside the format are not Weir's to delete.
            try:
                if first == "manifest":
                    listing.manifests[layout.parse_manifest_name(rest)] = meta.size
                elif first == "wal":
                    listing._add_entry(layout.parse_wal_name(rest), meta)
                elif rest:
                    number = 0 if layout.is_staged_name(first) else layout.parse_generation_name(first)
                    listing._add_to_directory(first, number, meta)
            except InputError:
                continue
        return listing

    def _add_entry(self, position: int, meta: ObjectMeta) -> None:
        other = self.log.get(position)
        if other is None:
            self.log[position] = LogObject((meta.path,), meta.size, meta.last_modified)
        else:
            modified = max(other.last_modified, meta.last_modified)
            self.log[position] = LogObject((*other.paths, meta.path), other.nbytes + meta.size, modified)

    def _add_to_directory(self, name: str, generation: int, meta: ObjectMeta) -> None:
        known = self.directories.get(name, Directory(generation, (), 0, meta.last_modified))
        self.directories[name] = Directory(
            generation,
            (*known.paths, meta.path),
            known.nbytes + meta.size,
            max(known.last_modified or meta.last_modified, meta.last_modified),
        )

    def numbered(self, latest: ShardManifest) -> dict[str, Directory]:
        """Return the directories, with the numbers that a manifest gives to staged ones."""
        numbers = {one.path: one.generation for one in latest.flushed_generations}
        return {
            name: replace(one, generation=one.generation or numbers.get(name, 0))
            for name, one in self.directories.items()
        }


def _unbroken_end(versions: Sequence[int]) -> Sequence[int]:
    """Return the versions that follow each other without a gap up to the newest."""
    start = len(versions) - 1
    while start and versions[start - 1] == versions[start] - 1:
        start -= 1
    return versions[start:]


class _Manifests:
    """Reads manifests of a shard, each once."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._read: dict[int, ShardManifest] = {}

    def read(self, version: int) -> ShardManifest:
        """Return the manifest of a version that was listed."""
        found = self._read.get(version)
        if found is None:
            found = read_manifest_version(self._survey.store, self._survey.shard_id, version)
            if found is None:
                raise _MovedError
            self._read[version] = found
        return found


class _Epochs:
    """Finds where in the log epochs begin, without reading every entry.

    Epochs never decrease along the log. So between two entries of one epoch there is no other, and the
    positions of changes are found by bisection. And an isolated entry was kept as a fence by an earlier
    collection, which removed its neighbours.
    """

    def __init__(self, survey: Survey, log: Mapping[int, LogObject]) -> None:
        self._store = survey.store
        self._shard_id = survey.shard_id
        self._since = survey.fences_since
        self._log = log
        self._epochs: dict[int, int | None] = {}

    def guards(self, coverage: Coverage) -> frozenset[int]:
        """Return the covered positions that hold the first entry of an epoch and have to stay."""
        covered = [position for position in sorted(self._log) if position <= coverage.end]
        if not covered:
            return frozenset()
        last = self._begin_of_newest(covered)
        first = next((i for i in range(last) if self._log[covered[i]].last_modified >= self._since), last)
        alone = [i for i in range(first, last) if self._stands_alone(covered[i])]
        found = {last, *alone, *((first,) if first == 0 else ())}
        ends = sorted({max(first - 1, 0), *alone, last})
        found |= self._changes(covered, list(pairwise(ends)))
        return frozenset(covered[i] for i in found)

    def _begin_of_newest(self, covered: Sequence[int]) -> int:
        """Return the index of the first entry of the newest epoch."""
        return bisect_left(covered, True, key=lambda position: self._same_epoch(position, covered[-1]))

    def _stands_alone(self, position: int) -> bool:
        return position - 1 not in self._log and position + 1 not in self._log

    def _changes(self, covered: Sequence[int], spans: list[tuple[int, int]]) -> set[int]:
        """Return the indexes within spans at which another epoch begins."""
        found = set()
        while spans:
            open_spans = []
            for low, high in spans:
                if high - low == 1 and self._stands_alone(covered[high]):
                    found.add(high)
                else:
                    open_spans.append((low, high))
            self._read_ahead({covered[i] for span in open_spans for i in span})
            spans = []
            for low, high in open_spans:
                middle = (low + high) // 2
                if self._same_epoch(covered[low], covered[high]):
                    continue
                if middle == low:
                    found.add(high)
                else:
                    spans += [(low, middle), (middle, high)]
        return found

    def _read_ahead(self, positions: Iterable[int]) -> None:
        """Read epochs at once that are going to be compared."""
        unknown = [position for position in positions if position not in self._epochs]
        if self._store.is_local or len(unknown) < 2:
            return
        for _ in concurrent_map(self._epoch, unknown, is_local=False, engine=self._store.engine):
            pass

    def _same_epoch(self, one: int, other: int) -> bool:
        epoch = self._epoch(one)
        # An entry that cannot be read is like no other: it stays, with its neighbours, until it is old.
        return epoch is not None and epoch == self._epoch(other)

    def _epoch(self, position: int) -> int | None:
        if position not in self._epochs:
            self._epochs[position] = self._read_epoch(position)
        return self._epochs[position]

    def _read_epoch(self, position: int) -> int | None:
        path = self._log[position].paths[0]
        where = f"{self._store.uri}/{path}"
        try:
            return self._stored_epoch(path, where)
        except ObjectNotFoundError:
            raise _MovedError from None
        except CorruptionError as error:
            _log.warning(
                "garbage.log_entry_unreadable", shard=str(self._shard_id), position=position, error=str(error)
            )
            return None

    def _stored_epoch(self, path: str, where: str) -> int:
        with suppress(CorruptionError):
            trailer = stored_trailer(self._store, path)
            if trailer is not None:
                return trailer.writer_epoch
        # Without a trailer, or with a damaged one, the schema's metadata has it.
        with suppress(CorruptionError):
            opening = self._store.get_range(path, 0, _OPENING_BYTES)
            return wal_entry.decode_header(opening, where=where).writer_epoch
        return wal_entry.decode_header(self._store.get(path), where=where).writer_epoch
