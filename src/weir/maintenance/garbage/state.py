"""A shard as seen by a garbage collection, and what of it is needed; values, without I/O."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from weir.format.shard_manifest import ShardManifest

__all__ = ["Coverage", "Directory", "LogObject", "ShardRoots", "ShardState", "coverage_of"]


@dataclass(frozen=True, slots=True)
class LogObject:
    """A log entry in a listing.

    Parameters
    ----------
    paths : tuple of str
        Its path; more than one only if it is there under both suffixes.
    nbytes : int
        Its size.
    last_modified : datetime
        When it was written, by the clock of the store.
    """

    paths: tuple[str, ...]
    nbytes: int
    last_modified: datetime


@dataclass(frozen=True, slots=True)
class Directory:
    """The directory of a generation in a listing.

    Parameters
    ----------
    generation : int
        The number in its name; of a staged one (:mod:`weir.write.flush.staged_generations`) the number that
        the newest manifest gives it, 0 if it does not list it.
    paths : tuple of str
        The objects in it.
    nbytes : int
        Their size.
    last_modified : datetime, optional
        When the last of them was written, by the clock of the store.
    """

    generation: int
    paths: tuple[str, ...]
    nbytes: int
    last_modified: datetime | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """Up to where merged generations cover the log of a shard.

    Parameters
    ----------
    position : int
        The last covered position; 0 if none is, or if the manifests do not show it.
    told_by : int
        The lowest manifest version that must be kept so that this can be determined again.
    beyond : int, default 0
        The last position up to which manifests cover more without a further generation: fences, and marks
        of writes that have changed nothing. No later than ``position`` if there are none.
    """

    position: int
    told_by: int
    beyond: int = 0

    @property
    def end(self) -> int:
        """The last position that is covered in either way."""
        return max(self.position, self.beyond)


@dataclass(frozen=True, slots=True)
class ShardState:
    """A shard as a collection finds it.

    Parameters
    ----------
    latest : ShardManifest
        Its newest manifest.
    manifests : mapping of int to int
        Size of every manifest there is, by version.
    log : mapping of int to LogObject
        Every log entry there is, by position.
    guards : frozenset of int
        Those covered positions that hold the first entry of an epoch: of the newest, and of all that
        are not older than fences are kept.
    directories : mapping of str to Directory
        Every directory of a generation.
    coverage : Coverage
        Up to where merged generations cover the log.
    named : mapping of int to ShardManifest, default {}
        Those manifests that roots name, as far as they exist.
    record : ShardManifest, optional
        The newest manifest that records how far sources have got, if the newest of all does not.
    """

    latest: ShardManifest
    manifests: Mapping[int, int]
    log: Mapping[int, LogObject]
    guards: frozenset[int]
    directories: Mapping[str, Directory]
    coverage: Coverage
    named: Mapping[int, ShardManifest] = field(default_factory=dict)
    record: ShardManifest | None = None

    @property
    def shard_id(self) -> UUID:
        """The shard."""
        return self.latest.shard_id


@dataclass(frozen=True, slots=True)
class ShardRoots:
    """What of a shard is needed.

    Parameters
    ----------
    merged : int
        The newest generation that the newest version of the base table contains.
    caught_up : int
        The newest generation that every maintained index covers.
    lagging_index : str, default ""
        The index that covers least, if it lags.
    generations : mapping of str to str, default {}
        Directories that roots need, and why.
    first_position : int, optional
        The lowest log position that a root needs.
    position_reason : str, default ""
        Which root that is.
    first_manifest : int, optional
        The lowest manifest version that a root needs.
    manifest_reason : str, default ""
        Which root that is.
    places : mapping of int to str, default {}
        Log positions whose entries tell roots that the log is the one they know, and which roots.
    """

    merged: int = 0
    caught_up: int = 0
    lagging_index: str = ""
    generations: Mapping[str, str] = field(default_factory=dict)
    first_position: int | None = None
    position_reason: str = ""
    first_manifest: int | None = None
    manifest_reason: str = ""
    places: Mapping[int, str] = field(default_factory=dict)


def coverage_of(merged: int, versions: Sequence[int], read: Callable[[int], ShardManifest]) -> Coverage:
    """Return up to where the generations up to ``merged`` cover the log.

    The manifest that published the last of them shows it, and the manifest before that one identifies it:
    later ones may cover more of the log without publishing anything.

    Parameters
    ----------
    merged : int
        The newest merged generation; 0 if none is.
    versions : sequence of int
        The unbroken run of manifest versions that ends with the newest, ascending.
    read : callable
        Returns the manifest of a version. Called for few of them.

    Examples
    --------
    >>> shard = UUID(int=1)
    >>> before = ShardManifest(shard, 3, current_generation=2)
    >>> after = ShardManifest(shard, 4, current_generation=3, replay_after_wal_entry_position=17)
    >>> coverage_of(2, [3, 4], {3: before, 4: after}.__getitem__)
    Coverage(position=17, told_by=3, beyond=0)
    >>> marks = ShardManifest(shard, 5, current_generation=3, replay_after_wal_entry_position=20)
    >>> coverage_of(2, [3, 4, 5], {3: before, 4: after, 5: marks}.__getitem__)
    Coverage(position=17, told_by=5, beyond=20)
    """

    def first_beyond(generation: int) -> int:
        """Return the index of the first version that was written after a generation was published."""
        return bisect_left(versions, True, key=lambda version: read(version).current_generation > generation)

    first = first_beyond(merged)
    if merged and 0 < first < len(versions):
        published, before = read(versions[first]), read(versions[first - 1])
        # If several generations were published at once, only what precedes them is certainly merged.
        covering = published if published.current_generation == merged + 1 else before
        position, told_by = covering.replay_after_wal_entry_position, versions[first - 1]
    else:
        # It is unknown, until the next generation is merged.
        position, told_by = 0, versions[max(first_beyond(merged + 1) - 1, 0)]
    newest = read(versions[-1])
    beyond = newest.replay_after_wal_entry_position
    if newest.current_generation == merged + 1 and beyond > position:
        # All generations are merged, so it alone is sufficient.
        return Coverage(position, newest.version, beyond)
    return Coverage(position, told_by)
