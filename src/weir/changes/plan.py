"""A plan of changes to read next, as a value: ranges of every shard's log, and the positions around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from weir.changes.range import ChangeRange
from weir.format.ipc_framing import StreamSize
from weir.format.snapshot_token import ShardCut, SnapshotToken

__all__ = [
    "Admitted",
    "ChangePlan",
    "PlanLimits",
    "admit",
    "arrived",
    "beginning",
    "split",
    "with_cut",
    "with_entries",
]


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """A division of changes into ranges that can be pickled and read independently.

    Together the ranges contain every change after ``since`` up to ``until`` exactly once. There is no order
    between shards; the ranges of one shard are in the order of its log.

    Parameters
    ----------
    since : SnapshotToken
        The position to begin after.
    until : SnapshotToken
        The position to end at, where the next plan begins.
    ranges : tuple of ChangeRange
        The ranges to read.
    rows, nbytes : int, optional
        The number of changes and their stored size in bytes, if known: with a limit they are.
    is_whole : bool, default True
        Whether that is everything there was. If the table was resharded, changes in the new shards follow all
        those in the former ones, in a separate plan.
    """

    since: SnapshotToken
    until: SnapshotToken
    ranges: tuple[ChangeRange, ...]
    rows: int | None = None
    nbytes: int | None = None
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """How much is read at a time.

    Parameters
    ----------
    rows, nbytes : int, optional
        The most rows, and the most bytes where they are stored. Default: no limit.
    """

    rows: int | None = None
    nbytes: int | None = None

    def __bool__(self) -> bool:
        """Whether there is one."""
        return self.rows is not None or self.nbytes is not None

    def admit(self, rows: int, nbytes: int) -> bool:
        """Whether so much is within them."""
        return (self.rows is None or rows <= self.rows) and (self.nbytes is None or nbytes <= self.nbytes)


@dataclass(frozen=True, slots=True)
class Admitted:
    """How much of one shard's log is read.

    Parameters
    ----------
    position : int
        The last log position.
    rows, nbytes : int
        Rows up to there, and their bytes.
    entry : bytes, default b""
        What a token has of the entry at that position, if known.
    """

    position: int
    rows: int
    nbytes: int
    entry: bytes = field(default=b"", repr=False)


_NOTHING = Admitted(0, 0, 0)


def admit(sizes: Mapping[UUID, Iterator[tuple[int, StreamSize]]], limits: PlanLimits) -> dict[UUID, Admitted]:
    """Return how far to read every log so that there is no more than the limits allow.

    The shards take turns, one entry each. One entry is always admitted, however large, so that reading makes
    progress; a shard without fitting entries is skipped.

    Parameters
    ----------
    sizes : mapping of UUID to iterator of (int, StreamSize)
        Position and size of the entries to be read, per shard and in order; the shard that comes first is
        the one to get a large entry through.
    limits : PlanLimits
        The limits.

    Examples
    --------
    >>> one, two = UUID(int=1), UUID(int=2)
    >>> small, large = StreamSize(rows=3, nbytes=100), StreamSize(rows=5, nbytes=900)
    >>> sizes = {one: iter([(1, large), (2, large), (3, large)]), two: iter([(1, small)])}
    >>> found = admit(sizes, PlanLimits(rows=15))
    >>> found[one], found[two]
    (Admitted(position=2, rows=10, nbytes=1800), Admitted(position=1, rows=3, nbytes=100))
    """
    admitted: dict[UUID, Admitted] = {}
    rows = nbytes = 0
    left = dict(sizes)
    while left:
        for shard_id, entries in list(left.items()):
            following = next(entries, None)
            if following is None:
                del left[shard_id]
                continue
            position, size = following
            if rows and not limits.admit(rows + size.rows, nbytes + size.nbytes):
                del left[shard_id]
                continue
            before = admitted.get(shard_id, _NOTHING)
            admitted[shard_id] = Admitted(
                position, before.rows + size.rows, before.nbytes + size.nbytes, size.entry
            )
            rows, nbytes = rows + size.rows, nbytes + size.nbytes
    return admitted


def split(whole: ChangeRange, entries: int | None) -> Iterator[ChangeRange]:
    """Yield a range in parts of at most this many log entries.

    With the rows before the changes it stays whole: where a part begins, they are what the one before
    has found out.
    """
    if entries is None or whole.base is not None:
        yield whole
        return
    begin = whole.begin
    while begin.position < whole.position:
        end = min(begin.position + entries, whole.position)
        is_last = end == whole.position
        yield replace(whole, begin=begin, position=end, entry=whole.entry if is_last else b"")
        begin = begin.at(end)


def beginning(shard_id: UUID) -> ShardCut:
    """Return the place before everything in a shard."""
    return ShardCut(shard_id, 0, 0, 0, 0)


def with_cut(token: SnapshotToken, cut: ShardCut) -> SnapshotToken:
    """Return a token in which one shard has moved on."""
    cuts = {one.shard_id: one for one in token.shards}
    cuts[cut.shard_id] = cut
    return replace(token, shards=tuple(cuts[shard_id] for shard_id in sorted(cuts)), pin=None)


def arrived(token: SnapshotToken, end: SnapshotToken) -> SnapshotToken:
    """Return the place where reading to ``end`` has ended that began somewhere before or beside it."""
    limits = {cut.shard_id: cut for cut in end.shards}
    reached = all(
        cut.shard_id in limits and cut.position <= limits[cut.shard_id].position for cut in token.shards
    )
    if reached and end.base_version:
        return with_entries(end.unpinned(), token)
    for cut in end.shards:
        begin = token.cut_of(cut.shard_id) or beginning(cut.shard_id)
        is_behind = begin.position < cut.position
        token = with_cut(token, begin.at(cut.position, cut.entry) if is_behind else begin)
    return with_entries(token, end)


def with_entries(token: SnapshotToken, other: SnapshotToken) -> SnapshotToken:
    """Return a token that also has of the entries at its positions what another one has."""
    for cut in token.shards:
        same = other.cut_of(cut.shard_id)
        if same is not None and not cut.entry and same.entry and same.position == cut.position:
            token = with_cut(token, cut.at(cut.position, same.entry))
    return token
