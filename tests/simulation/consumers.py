"""Who follows the change feed under a name, commits how far it has come, and dies now and then."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

from tests.simulation.actors import failures_allowed
from tests.simulation.checker import Change
from tests.simulation.scheduler import Process
from tests.simulation.world import KEY, ROWS_SCHEMA, World

from weir.changes.feed import EARLIEST, ChangeBatch, ChangeFeed, ConsumerTerms, FeedSource, open_feed
from weir.changes.options import FeedOptions
from weir.changes.range import ChangeSource
from weir.errors import ConflictError, OptionError, SnapshotExpiredError, StorageError
from weir.format.snapshot_token import SnapshotToken
from weir.snapshots.capture import SnapshotCapture
from weir.snapshots.consumers import drop_consumer
from weir.snapshots.time_travel import TokenReader

__all__ = ["Consumer"]

_CLOCKS_DIFFER_SECONDS = 2.0
_LOOK_BACK_CHANCE = 0.3
_Place = dict[UUID, int]


class Consumer:
    """A named consumer of the change feed, in one process after another.

    Every batch has to be what the log has after the batch before it: nothing skipped, nothing twice. A
    new process has to go on where the last commit was, or where one was of which nobody knows whether it
    came about.

    Parameters
    ----------
    world : World
        Where.
    name : str
        Its name.
    """

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._before = world.random.random() < 0.5
        self._max_age = world.random.choice([timedelta(hours=1), timedelta(days=30)])
        self._places: list[_Place] = []
        """Where it may be: what was committed last, and what may have been committed since."""
        self._kept_until = 0.0
        self._may_exist = False
        self.process: Process | None = None
        """The last process it has run in."""

    def run(self, rounds: int, process: Process) -> bool:
        """Follow the feed."""
        world, self.process = self._world, process
        feed: ChangeFeed | None = None
        for _ in range(rounds):
            world.scheduler.sleep(world.random.expovariate(1 / world.scenario.pace))
            with failures_allowed(world, process), world.within_the_horizon():
                if world.random.random() < _LOOK_BACK_CHANCE:
                    self._look_back()
                if feed is None or world.random.random() < 0.3:
                    feed = self._open()
                if feed is not None and not self._follow(feed):
                    feed = None
        return False

    def read_rest(self) -> None:
        """Open the feed once more and read whatever is left of it; then nothing is kept any longer."""
        with self._world.within_the_horizon():
            feed = self._open()
            if feed is not None:
                self._follow(feed)
            drop_consumer(self._world.store, self._name)

    def _look_back(self) -> None:
        """Read all changes that are still stored, under no name, with the rows before."""
        world = self._world
        try:
            since = EARLIEST if world.random.random() < 0.7 else None
            options = FeedOptions(before=world.random.random() < 0.8)
            feed = open_feed(_source(world), since, None, options, consumer=None, terms=ConsumerTerms())
            for _ in self._read(feed, options.before):
                pass
        except SnapshotExpiredError:
            # Nothing is kept for whoever has no name.
            world.checker.count("looks back that came too late")
            return
        world.checker.count("looks back")

    def _open(self) -> ChangeFeed | None:
        world = self._world
        source = _source(world)
        since = None if self._may_exist or world.random.random() < 0.5 else EARLIEST
        self._may_exist = True
        try:
            feed = open_feed(
                source,
                since,
                None,
                FeedOptions(before=self._before, batch_rows=world.random.choice([1, 2, 5])),
                consumer=self._name,
                terms=ConsumerTerms(self._max_age),
            )
        except SnapshotExpiredError as error:
            self._expired(error)
            return None
        except (ConflictError, OptionError):
            # Its creation by a process before this one has landed late.
            return None
        place = _place(feed.token)
        if self._places and place not in self._places:
            world.checker.fail("feed", f"{self._name} goes on at {place}, having committed {self._places}")
        self._places = self._places or [place]
        return feed

    def _follow(self, feed: ChangeFeed) -> bool:
        """Read one iteration and commit some of it; return whether the feed can be used again."""
        world = self._world
        window = world.checker.window()
        try:
            for _ in self._read(feed, self._before):
                if world.random.random() < 0.5 and not self._commit(feed):
                    return False
        except SnapshotExpiredError as error:
            self._expired(error)
            return False
        world.checker.caught_up(window, _place(feed.token), who=self._name)
        return self._commit(feed)

    def _read(self, feed: ChangeFeed, before: bool) -> Iterator[ChangeBatch]:
        """Yield the batches of one iteration; each has to follow the one before."""
        at = _place(feed.token)
        for batch in feed:
            changes = _changes(batch, before)
            self._world.checker.delivered(batch.shard_id, at.get(batch.shard_id, 0), batch.position, changes)
            at = _place(batch.token)
            yield batch

    def _commit(self, feed: ChangeFeed) -> bool:
        world = self._world
        place, began = _place(feed.token), world.scheduler.now
        self._places.append(place)
        try:
            feed.commit()
        except ConflictError:
            # A commit of a process before this one has landed late.
            return False
        except StorageError:
            return True
        self._places = [place]
        self._kept_until = began + self._max_age.total_seconds() - _CLOCKS_DIFFER_SECONDS
        world.checker.count("places of consumers committed")
        return True

    def _expired(self, error: SnapshotExpiredError) -> None:
        world = self._world
        world.checker.count("consumers that had expired")
        if world.scheduler.now < self._kept_until and not world.checker.has_wrong_clocks:
            world.checker.fail("I9", f"what {self._name} needs has been collected: {error}")
        self._places = []
        self._kept_until = 0.0
        self._may_exist = False
        drop_consumer(world.store, self._name)


def _source(world: World) -> FeedSource:
    base = world.open_base()
    return FeedSource(
        ChangeSource(world.store, base.identity, ROWS_SCHEMA, KEY),
        SnapshotCapture(world.store, base),
        TokenReader(world.store, base),
    )


def _place(token: SnapshotToken) -> _Place:
    """Return how far a token has come in every shard where it has passed anything."""
    return {cut.shard_id: cut.position for cut in token.shards if cut.position}


def _changes(batch: ChangeBatch, before: bool) -> list[Change]:
    rows = batch.rows
    replaced = rows.column("_before").to_pylist() if before else [None] * rows.num_rows
    return [
        Change(position, epoch, key, value, operation == "delete", row and row["value"], before)
        for position, epoch, key, value, operation, row in zip(
            *(rows.column(name).to_pylist() for name in ("_position", "_epoch", "id", "value", "_op")),
            replaced,
            strict=True,
        )
    ]
