"""What a seed chooses before anything happens: who takes part, what goes wrong, and what time is like."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from tests.simulation.store import FaultRates

from weir.config import WriterOptions
from weir.format.merge_engine import MergeEngine

__all__ = ["FENCE_HORIZON", "Scenario", "Time"]

FENCE_HORIZON = timedelta(hours=1)

_KINDS_AT_FIRST = 7
_LONG_SHARE = 0.05
"""The share of histories that are long."""
_PARTS = {"calls": 4, "reads": 4, "merges": 3, "collections": 6, "rounds": 3}
"""Into how many parts what is done in a long history has to be cut for a short one."""
_ANYWHERE: dict[str, tuple[Any, ...]] = {
    "waves": (0.0, 0.0, 0.0, 0.5),
    "decides": (0.0,) * 9 + (0.4,),
    "updaters": (0, 0, 0, 1),
    "compactors": (0, 0, 0, 1),
    "power_cuts": (0, 0, 0, 0, 1),
}
"""What a history that a seed chooses may have some of, whatever its kind."""
_AT_MOST = {"writers": 3, "mergers": 3, "repeaters": 2, "readers": 2}
"""How many take part in a short history at most."""
_SMALL_PARTS = {"calls": 8, "reads": 8, "merges": 3, "collections": 12, "rounds": 6}
_SMALL_AT_MOST = {"writers": 2, "mergers": 2, "repeaters": 1, "readers": 1, "threads": 2}
"""The same of a small one, of which there are many more in the same time."""
_SMALL_LONG_SHARE = 0.2
"""The share of those that would be long which are."""
_LEFT_OUT = 0.5
"""How often those who need not take part in a small history do not: who is missing hides no mistake."""
_NEED_NOT = ("mergers", "readers", "travellers", "consumers", "repeaters", "writers")
_COMES_TO_REST = 0.5
"""How often a small history ends with everything taken over, merged and collected."""

_FAULTS: dict[str, FaultRates] = {
    "no faults": FaultRates(slow=0.02),
    "slow": FaultRates(slow=0.15),
    "lost": FaultRates(lost_request=0.02, lost_answer=0.03, repeated=0.05, slow=0.02, untidy_listing=0.2),
    "delayed": FaultRates(delayed=0.05, lost_answer=0.01, repeated=0.02, slow=0.05),
    "wrong clocks": FaultRates(wrong_clock=0.01, lost_answer=0.01, crash=0.002, slow=0.02),
    "crashes": FaultRates(crash=0.01, slow=0.03),
    "everything": FaultRates(
        lost_request=0.01,
        lost_answer=0.015,
        repeated=0.02,
        delayed=0.015,
        crash=0.006,
        slow=0.04,
        untidy_listing=0.2,
    ),
}


@dataclass(frozen=True, slots=True)
class Time:
    """How time goes by where garbage is collected.

    Parameters
    ----------
    horizon : timedelta
        Of collections. Readers and services are done within it.
    jumps : tuple of float
        Seconds that may go by at once while others are at work.
    rest : tuple of float
        Seconds that go by, one after the other, while everything comes to rest.
    """

    horizon: timedelta
    jumps: tuple[float, ...]
    rest: tuple[float, ...]


# Readers look at a manifest again after a minute, so this horizon is over while they trust an old one.
_SHORT = Time(timedelta(seconds=20), (5.0, 21.0, 25.0, 40.0), (21.0, 25.0, 5000.0, 5000.0))
_LONG = Time(
    timedelta(minutes=15), (100.0, 1000.0, 1000.0, 5000.0), (1000.0, 1000.0, 5000.0, 5000.0, 200_000.0)
)
# What is staged may be published for half a day, and is kept for a day.
_DAYS = Time(
    timedelta(hours=1), (1000.0, 20_000.0, 45_000.0, 90_000.0), (5000.0, 90_000.0, 5000.0, 5000.0, 200_000.0)
)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of scenario: the numbers a seed chooses from."""

    writers: tuple[int, ...]
    calls: tuple[int, ...]
    threads: tuple[int, ...]
    memtable_rows: tuple[int, ...]
    mergers: tuple[int, ...]
    merges: tuple[int, ...]
    readers: tuple[int, ...]
    reads: tuple[int, ...]
    takeover: float = 0.6
    collects: float = 0.4
    sleep: float = 0.0
    travellers: tuple[int, ...] = (0, 0, 1)
    consumers: tuple[int, ...] = (0, 0, 1)
    repeaters: tuple[int, ...] = (0, 0, 0, 1)
    released: float = 0.0
    stagers: tuple[int, ...] = (0,)
    outlived: tuple[int, ...] = (0,)
    late: float = 0.0
    late_by: tuple[float, ...] = ()
    days: bool = False
    collections: tuple[int, ...] = (2, 4, 6)
    shards: tuple[int, ...] = (1, 1, 2)
    keys: tuple[int, ...] = (3, 6)
    by_the_clock: float = 0.0
    rounds: tuple[int, ...] = (3, 6)
    decides: float = 0.0
    waves: float = 0.0
    updaters: tuple[int, ...] = (0,)
    compactors: tuple[int, ...] = (0,)
    power_cuts: tuple[int, ...] = (0,)
    """Of a table on a disk of its own."""
    engines: tuple[MergeEngine, ...] = ()
    """What the versions of a key come to; none where the last one stays."""


_KINDS: dict[str, _Kind] = {
    "mixed": _Kind(
        writers=(1, 2, 2, 3),
        calls=(2, 5, 10, 16),
        threads=(1, 1, 2, 3),
        memtable_rows=(2, 4, 8, 100),
        mergers=(0, 1, 2),
        merges=(1, 2, 3),
        readers=(1, 1, 2),
        reads=(3, 5, 8),
    ),
    # Runs of generations that overlap, and many who merge them.
    "merging": _Kind(
        writers=(1,),
        calls=(20, 30),
        threads=(1, 2),
        memtable_rows=(1, 1, 2),
        mergers=(4, 6),
        merges=(6,),
        readers=(0, 0, 1),
        reads=(3,),
        collects=0.1,
        travellers=(0,),
        repeaters=(0,),
        consumers=(0, 0, 0, 1),
        shards=(1,),
        keys=(3,),
        by_the_clock=0.9,
    ),
    # Writers that take a shard away from each other.
    "claiming": _Kind(
        writers=(3, 4),
        calls=(3, 6),
        threads=(1, 2),
        memtable_rows=(2, 4, 100),
        mergers=(0, 1),
        merges=(1, 2),
        readers=(1,),
        reads=(3, 5),
        takeover=0.8,
        collects=0.2,
        travellers=(0,),
        consumers=(0, 0, 0, 1),
        shards=(1,),
    ),
    # Writers that stand still for hours in the middle of it, while others go on and collect.
    "sleeping": _Kind(
        writers=(2, 3),
        calls=(4, 8),
        threads=(1, 2),
        memtable_rows=(1, 2, 4),
        mergers=(1,),
        merges=(3, 5),
        readers=(0, 1),
        reads=(3,),
        takeover=1.0,
        collects=1.0,
        sleep=0.03,
        travellers=(0, 0, 1),
        shards=(1,),
    ),
    # Readers that remember, while what they remember is collected.
    "collecting": _Kind(
        writers=(1, 2, 3),
        calls=(16, 24),
        threads=(1,),
        memtable_rows=(1, 2, 4),
        mergers=(0, 1, 2),
        merges=(1, 3, 6),
        readers=(2, 3),
        reads=(6, 10, 20),
        collects=1.0,
        travellers=(0, 1, 1),
        consumers=(0, 1, 1),
        collections=(6, 12, 24),
    ),
    # Jobs that repeat what they do not know to be done, beside writers that know nothing of marks.
    "repeating": _Kind(
        writers=(0, 1, 1),
        calls=(3, 6, 10),
        threads=(1,),
        memtable_rows=(1, 2, 4, 100),
        mergers=(0, 1),
        merges=(2, 4),
        readers=(0, 1),
        reads=(3, 5),
        takeover=0.9,
        collects=0.6,
        sleep=0.005,
        travellers=(0,),
        consumers=(0, 0, 1),
        repeaters=(1, 2, 3),
        released=0.3,
        shards=(1, 1, 2),
    ),
    # Bulk jobs that write generations beside the log and have them published, while days go by.
    "staging": _Kind(
        writers=(0, 1, 1),
        calls=(3, 6),
        threads=(1,),
        memtable_rows=(1, 2, 4, 100),
        mergers=(0, 1, 2),
        merges=(2, 4),
        readers=(0, 1, 2),
        reads=(3, 5),
        takeover=0.9,
        collects=1.0,
        sleep=0.01,
        travellers=(0, 0, 1),
        consumers=(0, 0, 1),
        repeaters=(0, 0, 1),
        stagers=(1, 1, 2),
        collections=(8, 16),
        days=True,
    ),
    # Writers whose writes depend on the rows there are, some of them in doubt, flushed or merged.
    "deciding": _Kind(
        writers=(1, 2, 2),
        calls=(10, 20, 30),
        threads=(1, 2, 3),
        memtable_rows=(1, 2, 4, 100),
        mergers=(0, 1, 2),
        merges=(2, 4, 6),
        readers=(0, 1),
        reads=(3, 5),
        takeover=0.8,
        travellers=(0,),
        consumers=(0, 0, 1),
        repeaters=(0,),
        shards=(1, 1, 2),
        keys=(3, 6),
        decides=0.7,
    ),
    # Writers that write once more after they were taken over, at once or when all of it is collected.
    "outliving": _Kind(
        writers=(0,),
        calls=(2,),
        threads=(1,),
        memtable_rows=(1, 2, 4, 100),
        mergers=(0, 1),
        merges=(2,),
        readers=(0, 1),
        reads=(3,),
        collects=0.8,
        travellers=(0,),
        consumers=(0, 0, 1),
        repeaters=(0,),
        outlived=(1, 1, 2),
        shards=(1,),
        keys=(3,),
    ),
}
# Bulk jobs that publish when what they have staged is about to be collected, or is.
_KINDS["staging late"] = replace(
    _KINDS["staging"],
    stagers=(1,),
    calls=(6,),
    readers=(0,),
    travellers=(0,),
    repeaters=(0,),
    late=0.7,
    late_by=(100_000.0, 5000.0, 5000.0),
)
# Bulk jobs that publish hours after they have staged, with collections in between, and in time.
_KINDS["staging slowly"] = replace(_KINDS["staging late"], late_by=(5000.0, 5000.0))
# Many who read a shard for the first time while generations are published.
_KINDS["staging beside travellers"] = replace(
    _KINDS["staging"],
    calls=(6,),
    readers=(2, 3),
    mergers=(0,),
    travellers=(2, 3),
    consumers=(0,),
    repeaters=(0,),
    stagers=(1, 2),
    collects=0.0,
    sleep=0.0,
)

# Merges of many tasks and one commit, beside those of the library.
_KINDS["merging in waves"] = replace(
    _KINDS["merging"], waves=0.7, shards=(1, 2, 2, 3), keys=(6,), collects=0.3, readers=(0, 1)
)
# The same beside updates by plain Lance, which delete rows in the fragments that a merge has looked at.
_KINDS["updated by hand"] = replace(_KINDS["merging in waves"], waves=1.0, updaters=(1, 2))
# Compactions beside merges of both ways and updates by plain Lance.
_KINDS["compacting"] = replace(
    _KINDS["merging"],
    mergers=(2, 3),
    waves=0.3,
    shards=(1, 2),
    keys=(6,),
    collects=0.5,
    readers=(1, 2),
    updaters=(0, 1),
    compactors=(1, 2),
)
# One machine whose power is cut, with a disk that keeps what is synced.
_KINDS["losing power"] = replace(
    _KINDS["mixed"],
    calls=(10, 16),
    memtable_rows=(1, 2, 4),
    mergers=(1, 2),
    merges=(3, 6),
    collects=0.7,
    travellers=(0, 1),
    consumers=(0, 1, 2),
    updaters=(1, 2, 3),
    power_cuts=(1, 2, 3),
)


# Versions of a key that come to something, in every flush, read and merge again.
_KINDS["with a merge engine"] = replace(
    _KINDS["mixed"],
    calls=(10, 16, 24),
    memtable_rows=(2, 3, 8, 100),
    mergers=(1, 2, 3),
    merges=(3, 6),
    collects=0.5,
    consumers=(0,),
    keys=(2, 4),
    waves=0.5,
    updaters=(0, 0, 1),
    compactors=(0, 0, 1),
    engines=(
        MergeEngine.aggregation(value="sum"),
        MergeEngine.aggregation(value="max"),
        MergeEngine.first_row(),
    ),
)


# Those that take long are drawn less often; what is there for a planted bug that is rare elsewhere, never.
_WEIGHTS = {
    "staging": 2,
    "staging late": 1,
    "staging slowly": 1,
    "staging beside travellers": 0,
    "collecting": 3,
}
_WEIGHT = 4
_DRAWN = [name for name in _KINDS for _ in range(_WEIGHTS.get(name, _WEIGHT))]


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a seed has chosen.

    Parameters
    ----------
    kind, faults : str
        Names of the kind of scenario and of its faults, for the report.
    rates : FaultRates
        What goes wrong, and how often.
    shards : tuple of UUID
        The shards.
    is_local : bool
        What the store says of itself.
    power_cuts : int
        How often the power is cut.
    engine : MergeEngine or None
        What the versions of a key come to.
    time : Time or None
        How hours go by while garbage is collected; None if it is not.
    keys : int
        How many keys there are, in all shards.
    deletes : float
        The share of rows that are deletes.
    think : float
        Mean seconds between two calls of a writer or a reader.
    pace : float
        Mean seconds between two runs of a service.
    by_the_clock : float or None
        Seconds between the moments at which mergers that have planned begin; None if each begins at once.
    is_long : bool
        Whether everybody does as much as the kind says. Most mistakes show in short histories, of which
        there are many more in the same time; some only in long ones.
    is_small : bool
        Whether it is even shorter, with fewer who take part. A kind that is named is not.
    """

    kind: str
    faults: str
    rates: FaultRates
    shards: tuple[UUID, ...]
    is_local: bool
    power_cuts: int
    engine: MergeEngine | None
    time: Time | None
    keys: int
    deletes: float
    think: float
    pace: float
    by_the_clock: float | None
    is_long: bool
    is_small: bool
    _kind: _Kind
    _random: random.Random

    @classmethod
    def draw(cls, source: random.Random, name: str | None = None, is_long: bool | None = None) -> Scenario:
        """Choose, all but the kind if it is named, and whether it is long if that is said."""
        is_small = name is None
        if name is None:
            name = source.choice(_DRAWN)
            kind = _with_anything(_KINDS[name], source)
        else:
            # As many draws as when there were few kinds, so that a seed of a kind stays what it was.
            source.choice(range(_KINDS_AT_FIRST))
            kind = _KINDS[name]
        long = source.random() < _LONG_SHARE * (_SMALL_LONG_SHARE if is_small else 1.0)
        faults = source.choice(list(_FAULTS))
        collects = source.random() < kind.collects
        latency = source.choice([0.0005, 0.005] if collects else [0.0005, 0.005, 0.05])
        rates = replace(_FAULTS[faults], latency=latency, sleep=kind.sleep)
        ids = sorted(UUID(bytes=source.randbytes(16), version=4) for _ in range(source.choice(kind.shards)))
        power_cuts = source.choice(kind.power_cuts) if max(kind.power_cuts) else 0
        return cls(
            kind=name,
            faults=faults,
            rates=rates,
            shards=tuple(ids),
            is_local=source.random() < 0.5 or power_cuts > 0,
            power_cuts=power_cuts,
            engine=source.choice(kind.engines) if kind.engines else None,
            time=_draw_time(source, kind) if collects else None,
            keys=source.choice(kind.keys),
            deletes=source.choice([0.2, 0.5]),
            think=latency * source.choice([1, 4, 16]),
            pace=latency * source.choice([4, 20, 60]),
            by_the_clock=latency * 40 if source.random() < kind.by_the_clock else None,
            is_long=long if is_long is None else is_long,
            is_small=is_small,
            _kind=kind,
            _random=source,
        )

    def number_of(self, what: str) -> int:
        """Choose how many there are of something: ``writers``, ``merges``, ``reads``, ..."""
        choices: tuple[int, ...] = getattr(self._kind, what)
        number = self._random.choice(choices)
        if self.is_long:
            return number
        if not self.is_small:
            return min(number, _AT_MOST.get(what, number), -(-number // _PARTS.get(what, 1)))
        if what in _NEED_NOT and not min(choices) and self._random.random() < _LEFT_OUT:
            return 0
        return min(number, _SMALL_AT_MOST.get(what, number), -(-number // _SMALL_PARTS.get(what, 1)))

    def comes_to_rest(self) -> bool:
        """Choose whether everything is taken over, merged and collected in the end."""
        return not self.is_small or self._random.random() < _COMES_TO_REST

    @property
    def has_stagers(self) -> bool:
        """Whether anybody stages generations."""
        return self._kind.days

    def late_by(self) -> tuple[float, ...]:
        """Choose which seconds go by, one after the other, between staging and publishing; often none."""
        kind = self._kind
        return kind.late_by if kind.late > 0 and self._random.random() < kind.late else ()

    @property
    def has_outlived(self) -> bool:
        """Whether writers are taken over that write once more."""
        return max(self._kind.outlived) > 0

    def decides(self) -> bool:
        """Choose whether a write depends on the rows there are."""
        share = self._kind.decides
        return share > 0 and self._random.random() < share

    @property
    def has_waves(self) -> bool:
        """Whether merges of many tasks and one commit are among them."""
        return self._kind.waves > 0

    def has_any(self, what: str) -> bool:
        """Whether there may be any of something at all; if not, nothing is drawn for it."""
        choices: tuple[int, ...] = getattr(self._kind, what)
        return max(choices) > 0

    def merges_in_waves(self) -> bool:
        """Choose whether a merge is one of many tasks and one commit."""
        share = self._kind.waves
        return share > 0 and self._random.random() < share

    def has_released_writer(self) -> bool:
        """Choose whether a writer is one of the released library."""
        return self._random.random() < self._kind.released

    def _lease_ttls(self) -> list[float]:
        if self.time is None and not self._kind.sleep:
            return [2.0, 30.0]
        # A lease that is renewed every few minutes for days costs more than it shows.
        return [86_400.0] if self.time is _DAYS else [300.0, 86_400.0, 86_400.0]

    def draw_options(self, *, takes_over: bool = False) -> WriterOptions:
        """Choose the options of a writer."""
        source = self._random
        return WriterOptions(
            max_memtable_rows=self.number_of("memtable_rows"),
            max_frozen_memtables=source.choice([1, 2]),
            max_wal_delay=source.choice([0.0, 0.0, 0.005]),
            max_unflushed_bytes=source.choice([10_000, 1_000_000]),
            max_unmerged_generations=source.choice([3, 1000, 1000]),
            takeover=takes_over or source.random() < self._kind.takeover,
            # Where hours go by, leases with an end are soon over, and the fence is all that is left.
            lease_ttl=source.choice(self._lease_ttls()),
            backpressure_timeout=source.choice([0.05, 5.0]),
        )


def _with_anything(kind: _Kind, source: random.Random) -> _Kind:
    """Return a kind with some of what any history may have."""
    drawn = {name: source.choice(choices) for name, choices in _ANYWHERE.items()}
    return replace(
        kind,
        waves=kind.waves or drawn["waves"],
        # Where versions come to something, a write cannot depend on what is there.
        decides=0.0 if kind.engines else kind.decides or drawn["decides"],
        updaters=kind.updaters if max(kind.updaters) else (drawn["updaters"],),
        compactors=kind.compactors if max(kind.compactors) else (drawn["compactors"],),
        power_cuts=kind.power_cuts if max(kind.power_cuts) else (drawn["power_cuts"],),
    )


def _draw_time(source: random.Random, kind: _Kind) -> Time:
    if kind.days:
        return _DAYS
    return _LONG if kind.sleep or source.random() < 0.4 else _SHORT
