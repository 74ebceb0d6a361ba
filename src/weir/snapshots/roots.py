"""The states of a table that readers may return to, which hold garbage collection back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from weir.format.feed_consumer import FeedConsumer
from weir.format.snapshot_pin import SnapshotPin
from weir.format.snapshot_token import ShardCut
from weir.format.tag import Tag

__all__ = ["Root", "ShardRoot", "consumer_root", "snapshot_root", "tag_root"]

_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ShardRoot:
    """What a root needs of one shard.

    Parameters
    ----------
    shard_id : UUID
        The shard.
    manifest_version : int, optional
        A version of its manifest, with the generations that it lists; None if no manifest is needed.
    first_position : int
        The first log position that is needed, and all after it.
    place : int, default 0
        A log position whose entry tells that this is the log it was, 0 for none: kept, and not needed.
    """

    shard_id: UUID
    manifest_version: int | None
    first_position: int
    place: int = 0


@dataclass(frozen=True, slots=True)
class Root:
    """What a pinned snapshot, a tag or a consumer of the change feed needs (invariant I9).

    Parameters
    ----------
    holder : str
        The name of its holder: ``snapshot ID``, ``tag NAME`` or ``consumer NAME``.
    base_version : int, optional
        A version of the base table; None if none is needed.
    shards : tuple of ShardRoot
        By ascending shard id.
    needs_new_shards : bool
        Whether the whole log of every shard that is not in ``shards`` is needed.
    expires_at : datetime
        When this ends by itself, in UTC, if nothing happens before.
    """

    holder: str
    base_version: int | None
    shards: tuple[ShardRoot, ...]
    needs_new_shards: bool
    expires_at: datetime

    def first_position(self, shard_id: UUID) -> int | None:
        """Return the first log position of a shard that is needed, or None if none is."""
        for shard in self.shards:
            if shard.shard_id == shard_id:
                return shard.first_position
        return 0 if self.needs_new_shards else None


def snapshot_root(pin: SnapshotPin) -> Root:
    """Return what a pinned snapshot needs."""
    token = pin.token
    shards = tuple(_state_of(cut) for cut in token.shards)
    return Root(f"snapshot {token.pin}", token.base_version or None, shards, False, pin.expires_at)


def tag_root(tag: Tag) -> Root:
    """Return what a tag needs, until it is dropped."""
    shards = tuple(_state_of(cut) for cut in tag.token.shards)
    return Root(f"tag {tag.name}", tag.token.base_version or None, shards, False, _NEVER)


def consumer_root(consumer: FeedConsumer) -> Root:
    """Return what a consumer needs: the changes after its token, and with ``before`` the state there."""
    token = consumer.token
    if consumer.before:
        shards = tuple(_state_of(cut) for cut in token.shards)
    else:
        shards = tuple(
            ShardRoot(cut.shard_id, None, _next_position(cut), cut.position if cut.entry else 0)
            for cut in token.shards
        )
    base_version = token.base_version or None if consumer.before else None
    expires_at = consumer.updated_at + consumer.max_age
    return Root(f"consumer {consumer.name}", base_version, shards, True, expires_at)


def _state_of(cut: ShardCut) -> ShardRoot:
    return ShardRoot(cut.shard_id, cut.manifest_version or None, cut.first_position)


def _next_position(cut: ShardCut) -> int:
    """Return where reading continues after a cut: at 0, where some writers begin, if nothing was read."""
    return cut.position + 1 if cut.position else 0
