"""What must hold, whatever happens: a model of the table, and the invariants checked against it.

The model of a shard is the list of rows in the order in which their log entries reached the store: that
is the instant at which a write takes effect. After every position it knows the state: key to value. A
read is right if it shows the state after a position between the last one when it began and the last one
when it ended. Nothing here looks at how the engine does it, except where an invariant is about an
object: a log entry, a shard manifest, a version of the base table. These are checked when they appear.
"""

from __future__ import annotations

import math
import traceback
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from uuid import UUID

import pyarrow as pa
from tests.simulation.engines import Row, State, combining, folded, state_after
from tests.simulation.library import DatasetVersion, Library, number_of, version_path
from tests.simulation.marks import Marks
from tests.simulation.primitives import uptime_to_time
from tests.simulation.publications import Publication, Publications, newest_rows_of
from tests.simulation.scheduler import Process
from tests.simulation.store import SimulatedStore
from tests.simulation.violation import Violation

from weir.base.spent_versions import set_aside_path
from weir.format import layout, lease, shard_manifest, wal_entry
from weir.format.lease import Lease
from weir.format.merge_engine import MergeEngine
from weir.format.shard_manifest import FlushedGeneration, ShardManifest
from weir.format.source import Source
from weir.format.wal_entry import TOMBSTONE

__all__ = ["Change", "Checker", "Outcome", "ReadWindow", "Write"]

_shard_id = lru_cache(maxsize=1024)(UUID)


class Outcome:
    """What the caller of a write was told."""

    ACKNOWLEDGED = "acknowledged"
    IN_DOUBT = "in doubt"
    REFUSED = "refused"
    INVALID = "invalid"


@dataclass(slots=True)
class Write:
    """One call of a writer.

    Parameters
    ----------
    shard : UUID
        Where it goes.
    rows : tuple of (int, int, bool)
        Key, value and whether the row deletes the key. No two rows of a simulation have one value.
    source : Source, optional
        The mark of a write that may be repeated: all calls that make it are this one write.
    parts : tuple of int
        Of rows that are staged: how many of them are in each generation.
    """

    shard: UUID
    rows: tuple[tuple[int, int, bool], ...]
    source: Source | None = None
    parts: tuple[int, ...] = ()
    decides: bool = False
    """Whether each row is written only where the present value is even, or there is none."""
    outcome: str = Outcome.IN_DOUBT
    landed: list[int] = field(default_factory=list)
    """Positions at which it stands in the log."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change that the feed has delivered.

    Parameters
    ----------
    position, epoch : int
        The log entry it is from.
    key : int
        Of the row.
    value : int
        Of the row. The deletes of a simulation have one too, which tells them apart.
    dead : bool
        Whether it is a delete.
    before : int or None
        The value before it, if there was one and it was asked for.
    has_before : bool
        Whether it was asked for.
    """

    position: int
    epoch: int
    key: int
    value: int
    dead: bool
    before: int | None
    has_before: bool


@dataclass(slots=True)
class _Entry:
    epoch: int
    fence: bool
    rows: list[Row]
    published: Sequence[Row] = ()
    """Rows of generations that the entry names."""


@dataclass(slots=True)
class _Shard:
    """The model of one shard."""

    entries: list[_Entry] = field(default_factory=list)
    """By position; position 0 is not used."""
    landed_at: list[float] = field(default_factory=list)
    states: list[State] = field(default_factory=lambda: [{}])
    """The state after every position; the one before any entry first."""
    writer_of_epoch: dict[int, Process] = field(default_factory=dict)
    manifests: list[ShardManifest] = field(default_factory=list)
    end_of_generation: dict[int, int] = field(default_factory=dict)
    """The last position that a generation, and all before it, cover."""
    publications: Publications = field(default_factory=Publications)
    has_staged: bool = False
    """Whether anything was staged in it."""
    merged: int = 0
    marks: Marks = field(default_factory=Marks)
    lease: Lease | None = None
    claimed: int = 0
    """The newest epoch whose claim has succeeded."""

    @property
    def end(self) -> int:
        """The last position."""
        return len(self.entries)


@dataclass(frozen=True, slots=True)
class ReadWindow:
    """The last position of every shard when a read began."""

    begins: Mapping[UUID, int]
    merged: Mapping[UUID, int]
    """The last position that the base table has taken in."""


class Checker:
    """Watches a simulated store and the answers of those who use it.

    Parameters
    ----------
    store : SimulatedStore
        The store.
    library : Library
        What is kept for its objects.
    shards : sequence of UUID
        The shards; the key ``k`` is in number ``k`` modulo their number.
    holders : mapping of str to Process
        The processes that hold leases, by the id of the holder.
    engine : MergeEngine, optional
        What the versions of a key come to. Default: the last one.
    """

    def __init__(
        self,
        store: SimulatedStore,
        library: Library,
        shards: Sequence[UUID],
        holders: Mapping[str, Process],
        engine: MergeEngine | None = None,
    ) -> None:
        self.has_wrong_clocks = False
        """Whether wall clocks are wrong, so that nothing that rests on them is promised."""
        self.takes_over: set[str] = set()
        """Holders that need not respect the lease of another."""
        self._holders = holders
        self._engine, self._combine = engine, combining(engine)
        self._store = store
        self._library = library
        self._order = list(shards)
        self.shards = {shard: _Shard() for shard in shards}
        self.violations: list[Violation] = []
        self.writes: list[Write] = []
        self._write_of_value: dict[int, Write] = {}
        self._base: DatasetVersion | None = None
        self._under_spent_numbers: dict[int, Process] = {}
        self._base_state: State = {}
        self.counts: dict[str, int] = {}

    def count(self, what: str, number: int = 1) -> None:
        """Count something, for the report."""
        self.counts[what] = self.counts.get(what, 0) + number

    def fail(self, invariant: str, message: str) -> None:
        """Record that an invariant does not hold."""
        self._store.note(f"VIOLATION {invariant}: {message}")
        self.violations.append(Violation(invariant, message))

    def unexpected(self, who: str, error: BaseException) -> None:
        """Record an error that nothing explains."""
        lines = "".join(traceback.format_exception(error))
        self.fail("no unexplained error", f"{who}: {type(error).__name__}: {error}\n{lines}")

    def shard_of(self, key: int) -> UUID:
        """Return the shard of a key."""
        return self._order[key % len(self._order)]

    def ends(self) -> dict[UUID, int]:
        """Return the last log position of every shard."""
        return {shard_id: shard.end for shard_id, shard in self.shards.items()}

    def unmerged(self) -> int:
        """Return how many generations are flushed and not merged."""
        return sum(
            len([one for one in shard.end_of_generation if one > shard.merged])
            for shard in self.shards.values()
        )

    def merged(self) -> bool:
        """Return whether anything is merged."""
        return any(shard.merged for shard in self.shards.values())

    def _after(self, state: Mapping[int, int], rows: Sequence[Row]) -> State:
        """Return a state after some rows."""
        return state_after(state, rows, self._combine)

    # Writes

    def began(
        self,
        shard: UUID,
        rows: Sequence[Row],
        source: Source | None = None,
        parts: Sequence[int] = (),
        *,
        decides: bool = False,
    ) -> Write:
        """Note that a write is about to be made; one with a mark for the first time."""
        self.shards[shard].has_staged |= bool(parts)
        write = Write(shard, tuple(rows), source, tuple(parts), decides)
        self.writes.append(write)
        for _, value, _ in rows:
            self._write_of_value[value] = write
        return write

    def acknowledged(self, write: Write, position: int) -> None:
        """Note that a write has been acknowledged at a position."""
        write.outcome = Outcome.ACKNOWLEDGED
        self.count("writes acknowledged")
        if write.decides:
            self._decided(write, position)
        elif position not in write.landed:
            self.fail(
                "I1",
                f"a write was acknowledged at position {position} of {_short(write.shard)} and is in the "
                f"log at {write.landed or 'no position'}",
            )

    def _decided(self, write: Write, position: int) -> None:
        """Check the rows of a write that were left out, for each of which there has to be a reason."""
        shard = self.shards[write.shard]
        entry = shard.entries[position - 1] if position else _Entry(0, True, [])
        written = {value for _, value, _ in entry.rows}
        self.count("rows left out", sum(value not in written for _, value, _ in write.rows))
        # The generations that an entry names are there before its rows.
        states = [self._after(shard.states[max(position - 1, 0)], entry.published)]
        for row in entry.rows:
            states.append(self._after(states[-1], [row]))
        for key, value, _ in write.rows:
            if value not in written and all(_is_free(state, key) for state in states):
                self.fail(
                    "decided",
                    f"{value} was left out at position {position} of {_short(write.shard)}, though its "
                    f"condition held of {states[0].get(key)}",
                )

    def repeated(self, write: Write, position: int | None) -> None:
        """Note that a write with a mark is reported as done, now or before, with the log up to a position.

        None stands for a publication that was passed over.
        """
        write.outcome = Outcome.ACKNOWLEDGED
        self.count("marked writes acknowledged")
        if not write.landed:
            self.fail(
                "I1", f"{write.source} was reported as done in {_short(write.shard)} and is not in the log"
            )
        elif position not in write.landed:
            self.count("marked writes passed over")
            if position is not None and position < write.landed[0]:
                self.fail("marks", f"{write.source} was passed over at {position}, and is at {write.landed}")

    def claimed(self, shard_id: UUID, epoch: int) -> None:
        """Note that a claim has succeeded: whoever has a lower epoch is fenced from now on."""
        shard = self.shards[shard_id]
        shard.claimed = max(shard.claimed, epoch)

    # The store tells what happens

    def written(self, path: str, data: bytes, by: Process) -> None:
        """Check an object that has just been written."""
        parts = path.split("/")
        try:
            if parts[0] == "_versions":
                self._base_version(self._library.kept(data), by)
            elif parts[0] == layout.MEM_WAL and len(parts) == 3:
                self._lease(_shard_id(parts[1]), data)
            elif parts[0] == layout.MEM_WAL and len(parts) == 4:
                if parts[2] == "wal":
                    self._log_entry(_shard_id(parts[1]), parts[3], data, by)
                elif parts[2] == "manifest" and parts[3].endswith(".binpb"):
                    self._manifest(_shard_id(parts[1]), data, by)
        except Violation as violation:
            self.fail(*violation.args)

    def deleted(self, path: str, by: Process) -> None:
        """Check an object that has just been deleted."""
        parts = path.split("/")
        if parts[0] == "_versions" and self._base is not None and number_of(path) == self._base.version:
            self.fail("I9", f"the newest version of the base table, {number_of(path)}, was collected")
        if parts[0] != layout.MEM_WAL or len(parts) < 4:
            return
        shard = self.shards[_shard_id(parts[1])]
        newest = shard.manifests[-1] if shard.manifests else None
        self.count("objects collected")
        if newest is None:
            return
        if parts[2] == "wal":
            position = layout.parse_reversed_name(parts[3].split(".")[0])
            if position > newest.replay_after_wal_entry_position:
                self.fail("I9", f"log entry {position} was collected and no generation covers it")
            self.count("log entries collected")
        elif parts[2] == "manifest" and parts[3].endswith(".binpb"):
            self.count("shard manifests collected")
            version = layout.parse_reversed_name(parts[3].removesuffix(".binpb"))
            if version == newest.version:
                self.fail("I9", f"the newest shard manifest, {version}, was collected")
        else:
            for listed in newest.flushed_generations:
                if listed.path == parts[2] and listed.generation > shard.merged:
                    self.fail("I9", f"generation {listed.generation} was collected and is not merged")

    def _log_entry(self, shard_id: UUID, name: str, data: bytes, by: Process) -> None:
        shard = self.shards[shard_id]
        position = layout.parse_reversed_name(name.split(".")[0])
        if position <= shard.end:
            # Its place had been collected. Nobody will read it: the write must not be acknowledged.
            self.count("entries written where one was collected")
            return
        if position != shard.end + 1:
            raise Violation("I3", f"position {position} was written while the log ends at {shard.end}")
        entry = wal_entry.decode(data, where=name)
        epoch = entry.header.writer_epoch
        rows = [
            (key, value, dead)
            for batch in entry.batches
            for key, value, dead in zip(
                batch.column("id").to_pylist(),
                batch.column("value").to_pylist(),
                batch.column(TOMBSTONE).to_pylist(),
                strict=True,
            )
        ]
        last = shard.entries[-1].epoch if shard.entries else 0
        shard.landed_at.append(self._store.scheduler.now)
        pending, shard.publications.pending = shard.publications.pending, None
        published = () if pending is None else pending.rows
        shard.entries.append(_Entry(epoch, entry.header.fence, rows, published))
        shard.states.append(self._after(shard.states[-1], [*published, *rows]))
        self.count("log entries")
        if entry.header.published != (() if pending is None else pending.paths):
            raise Violation(
                "staged",
                f"position {position} of {_short(shard_id)} names {entry.header.published}, and what is to "
                f"be named is {pending}",
            )
        self._check_decided(shard_id, shard.states[-2], published, rows, position)
        writes = {id(one): one for _, value, _ in rows if (one := self._write_of_value.get(value))}.values()
        sources = tuple(write.source for write in writes if write.source is not None)
        in_order = shard.marks.append(sources)
        for write in writes:
            write.landed.append(position)
            if len(write.landed) > 1:
                raise Violation("I4", f"one write is in the log at {write.landed}")
        if not in_order or sources != entry.header.sources:
            raise Violation(
                "marks",
                f"{sources} are in the log at position {position} of {_short(shard_id)}, which is marked "
                f"{entry.header.sources}, after {shard.marks.at(position - 1)}",
            )
        if epoch < shard.claimed:
            raise Violation(
                "I2", f"epoch {epoch} wrote position {position} after a claim with {shard.claimed}"
            )
        if epoch < last:
            raise Violation("I2", f"epoch {epoch} wrote position {position} after epoch {last}")
        if not shard.manifests or epoch > shard.manifests[-1].writer_epoch:
            raise Violation("I2", f"epoch {epoch} wrote position {position} and was never claimed")
        if shard.writer_of_epoch.setdefault(epoch, by) is not by:
            raise Violation("I2", f"{by.name} wrote position {position} with an epoch of another process")

    def _check_decided(
        self, shard_id: UUID, state: State, published: Sequence[Row], rows: Sequence[Row], position: int
    ) -> None:
        """Check that the conditions of the rows of an entry hold, each after the rows before it."""
        if not any(write.decides for _, value, _ in rows if (write := self._write_of_value.get(value))):
            return
        state = self._after(state, published)
        for key, value, dead in rows:
            write = self._write_of_value.get(value)
            if write is not None and write.decides and not _is_free(state, key):
                raise Violation(
                    "decided",
                    f"{value} was written at position {position} of {_short(shard_id)} over {state[key]}, "
                    "of which its condition does not hold",
                )
            state = self._after(state, [(key, value, dead)])

    def _manifest(self, shard_id: UUID, data: bytes, by: Process) -> None:
        shard = self.shards[shard_id]
        manifest = shard_manifest.decode(data, where="manifest")
        before = shard.manifests[-1] if shard.manifests else ShardManifest(shard_id, 0)
        if manifest.version <= before.version:
            self.count("manifests written where one was collected")
            return
        shard.manifests.append(manifest)
        self.count("shard manifests")
        where = f"manifest {manifest.version} of {_short(shard_id)}"
        if manifest.version != before.version + 1:
            raise Violation("I3", f"{where} follows {before.version}")
        if manifest.writer_epoch < before.writer_epoch:
            raise Violation("I2", f"{where} has epoch {manifest.writer_epoch} after {before.writer_epoch}")
        start, end = before.replay_after_wal_entry_position, manifest.replay_after_wal_entry_position
        if not start <= end <= shard.end:
            raise Violation("I1", f"{where} says that the log is covered up to {end} after {start}")
        known = {one.path for one in before.flushed_generations}
        added = [one for one in manifest.flushed_generations if one.path not in known]
        numbers = [one.generation for one in manifest.flushed_generations]
        if len(set(numbers)) != len(numbers):
            raise Violation("I5", f"{where} lists generations {numbers}")
        is_publication = any(layout.is_staged_name(one.path) for one in added)
        if is_publication:
            self._published(shard_id, added, before, manifest, where)
        self._marks_recorded(shard, before, manifest, by, where)
        if is_publication:
            return
        if len(added) > 1:
            raise Violation("I5", f"{where} adds {len(added)} generations")
        self._removed(shard, before, manifest, where)
        rows = [row for entry in shard.entries[start:end] for row in entry.rows]
        if not added:
            if rows:
                raise Violation("I1", f"{where} covers {len(rows)} rows of the log by no generation")
            return
        shard.end_of_generation[added[0].generation] = end
        self._generation(shard_id, added[0], before, rows, where)

    def _marks_recorded(
        self, shard: _Shard, before: ShardManifest, manifest: ShardManifest, by: Process, where: str
    ) -> None:
        if manifest.sources is None:
            if before.sources is not None and not by.is_released:
                raise Violation("marks", f"{where} has no record of marks, unlike the one before it")
            self.count("manifests without a record of marks")
            return
        expected = shard.marks.at(manifest.replay_after_wal_entry_position)
        if manifest.sources.sequences != expected:
            raise Violation("marks", f"{where} records {manifest.sources.sequences}, not {expected}")

    def _removed(self, shard: _Shard, before: ShardManifest, manifest: ShardManifest, where: str) -> None:
        kept = {one.path for one in manifest.flushed_generations}
        for one in before.flushed_generations:
            if one.path not in kept and one.generation > shard.merged:
                raise Violation("I9", f"{where} drops generation {one.generation}, which is not merged")

    def _generation(
        self,
        shard_id: UUID,
        flushed: FlushedGeneration,
        before: ShardManifest,
        rows: Sequence[tuple[int, int, bool]],
        where: str,
    ) -> None:
        if flushed.generation != before.current_generation:
            raise Violation(
                "I5", f"{where} adds generation {flushed.generation} for {before.current_generation}"
            )
        expected = sorted(folded(rows, self._engine))
        written = sorted(self._written(shard_id, flushed, where))
        if written != expected:
            raise Violation(
                "I1", f"generation {flushed.generation} of {_short(shard_id)} is {written} for {expected}"
            )
        self.count("generations")

    def _published(
        self,
        shard_id: UUID,
        added: Sequence[FlushedGeneration],
        before: ShardManifest,
        manifest: ShardManifest,
        where: str,
    ) -> None:
        """Check a manifest that publishes staged generations, and take them into the model."""
        shard = self.shards[shard_id]
        start, end = before.replay_after_wal_entry_position, manifest.replay_after_wal_entry_position
        numbers = [one.generation for one in added]
        following = range(before.current_generation, before.current_generation + len(added))
        if numbers != list(following) or manifest.current_generation != following.stop:
            raise Violation("I5", f"{where} publishes generations {numbers} for {list(following)}")
        if any(entry.rows for entry in shard.entries[start:end]):
            raise Violation("I1", f"{where} covers rows of the log by generations that were staged")
        if {one.published_after for one in added} != {shard.end} or end != shard.end:
            raise Violation(
                "staged", f"{where} publishes {added} and covers the log up to {end}; it ends at {shard.end}"
            )
        if shard.publications.pending is not None:
            raise Violation("staged", f"{where} publishes before the log names {shard.publications.pending}")
        write = self._staged_write(shard_id, added, where)
        write.landed.append(end + 1)
        if len(write.landed) > 1:
            raise Violation("I4", f"{write.source} was published at {write.landed}")
        rows: list[Row] = []
        states: dict[int, State] = {}
        for number, part in zip(numbers, _parts(write), strict=True):
            rows += newest_rows_of(part)
            states[number] = self._after(shard.states[-1], rows)
            shard.end_of_generation[number] = end
        shard.publications.add(Publication(end, tuple(one.path for one in added), tuple(rows), states))
        if write.source is not None and not shard.marks.add([write.source]):
            raise Violation("marks", f"{where} publishes {write.source} out of order")
        self.count("publications")
        self.count("staged generations published", len(added))

    def _staged_write(self, shard_id: UUID, added: Sequence[FlushedGeneration], where: str) -> Write:
        """Return the write that some staged generations are."""
        contents = [sorted(self._written(shard_id, one, where)) for one in added]
        write = self._write_of_value[contents[0][0][1]]
        expected = [sorted(newest_rows_of(part)) for part in _parts(write)]
        if contents != expected:
            raise Violation("I1", f"{where} publishes {contents} for {expected}")
        return write

    def _written(self, shard_id: UUID, one: FlushedGeneration, where: str) -> list[Row]:
        """Return the rows of a generation, of which every file has to be there."""
        path = layout.generation_path(shard_id, one.path)
        # A key may be there twice where versions come to something, and no row is found by it.
        of_keys = () if self._engine is not None else (layout.PK_INDEX,)
        for needed in ("_versions/", "data/", layout.BLOOM_FILTER, *of_keys):
            if not any(name.startswith(f"{path}/{needed}") for name in self._store.names_below(path)):
                raise Violation("I1", f"{where} lists generation {one.generation} without {needed}")
        return self._rows_below(path)

    def _rows_below(self, path: str) -> list[Row]:
        name = next(iter(self._store.names_below(f"{path}/_versions")), None)
        if name is None:
            return []
        version = self._library.kept(self._store.objects[name].data)
        return [(key, row["value"], row[TOMBSTONE]) for key, row in self._library.rows_of(version).values()]

    def _lease(self, shard_id: UUID, data: bytes) -> None:
        shard = self.shards[shard_id]
        before, shard.lease = shard.lease, lease.decode(data, where="lease")
        now, holder = shard.lease, shard.lease.holder.holder_id
        self.count("leases written")
        if before is None or before.holder.holder_id == holder:
            return
        if now.epoch <= before.epoch:
            raise Violation("lease", f"a lease with epoch {now.epoch} follows one with {before.epoch}")
        former = self._holders[before.holder.holder_id]
        held = uptime_to_time(before.expires_at_uptime, former) > self._store.scheduler.now
        if self.has_wrong_clocks:
            return
        if held and not before.released and former.alive and holder not in self.takes_over:
            raise Violation("lease", f"a claim took the lease that {former.name} held")

    def _base_version(self, at: DatasetVersion, by: Process) -> None:
        before = self._base
        if before is not None and at.version < before.version and self._is_set_aside(at.version):
            # Below the newest version nobody looks for it, and whoever has made it takes it back.
            self._under_spent_numbers[at.version] = by
            self.count("spent numbers met")
            return
        if before is not None and at.version <= before.version:
            raise Violation("I7", f"version {at.version} of the base table was written twice")
        self._base = at
        if before is None:
            return
        # Numbers that a loss of power has torn come back under none.
        between = range(before.version + 1, at.version)
        if not all(self._is_torn(number) for number in between):
            raise Violation("I7", f"version {at.version} of the base table follows {before.version}")
        for shard_id, shard in self.shards.items():
            merged = at.details.merged_generation(shard_id)
            if merged < shard.merged:
                raise Violation("I7", f"merge progress of {_short(shard_id)} went back to {merged}")
            if merged > shard.merged:
                self.count("generations merged", merged - shard.merged)
            shard.merged = merged
        if at.fragments == before.fragments:
            if any(
                at.details.merged_generation(one) != before.details.merged_generation(one)
                for one in self.shards
            ):
                self._compare_base(at)
            return
        self._compare_base(at)

    def _is_torn(self, number: int) -> bool:
        torn = self._store.peek(version_path("", number))
        if torn is None:
            return self._is_set_aside(number)
        return self._library.tear_in(torn) is not None

    def _is_set_aside(self, number: int) -> bool:
        return self._store.peek(set_aside_path(number)) is not None

    def _compare_base(self, at: DatasetVersion) -> None:
        state: State = {}
        for key, row in self._library.rows_of(at).values():
            if key in state:
                raise Violation("I5", f"version {at.version} of the base table has key {key} twice")
            state[key] = row["value"]
        self._base_state = state
        for shard_id, shard in self.shards.items():
            covered = shard.end_of_generation.get(shard.merged, 0)
            expected = shard.publications.state_of(shard.merged) or shard.states[covered]
            flushed_to = shard.manifests[-1].replay_after_wal_entry_position if shard.manifests else 0
            # A merge deletes before it inserts: what a later generation deletes may be gone already.
            doomed = {
                key for entry in shard.entries[covered:flushed_to] for key, _, dead in entry.rows if dead
            } | {key for one in shard.publications.since(covered) for key, _, dead in one.rows if dead}
            found = {key: value for key, value in state.items() if self.shard_of(key) == shard_id}
            for key in {*found, *expected}:
                if found.get(key) != expected.get(key) and not (key in doomed and key not in found):
                    raise Violation(
                        "I7",
                        f"version {at.version} of the base table, merged up to generation {shard.merged} of "
                        f"{_short(shard_id)}, has {found.get(key)} for key {key}, not {expected.get(key)}",
                    )

    def lost_versions(self) -> None:
        """Go back to the newest version of the base table that a power cut has left whole."""
        left = (self._store.objects[path].data for path in sorted(self._store.names_below("_versions")))
        newest = next(data for data in left if self._library.tear_in(data) is None)
        at: DatasetVersion = self._library.kept(newest)
        self._base = at
        for shard_id, shard in self.shards.items():
            shard.merged = at.details.merged_generation(shard_id)
        self._compare_base(at)

    # Reads

    def window(self, *, seconds_behind: float = 0.0) -> ReadWindow:
        """Note that a read begins that may show what was true some seconds ago."""
        since = self._store.scheduler.now - seconds_behind
        return ReadWindow(
            {
                shard_id: shard.end if not seconds_behind else bisect_right(shard.landed_at, since)
                for shard_id, shard in self.shards.items()
            },
            {
                shard_id: shard.end_of_generation.get(shard.merged, 0)
                for shard_id, shard in self.shards.items()
            },
        )

    def saw(
        self, window: ReadWindow, rows: pa.Table, *, keys: Sequence[int] | None = None, who: str = "read"
    ) -> None:
        """Check what a read that began with ``window`` has shown, now that it ends.

        Every shard has to show the state after one position, between the last when the read began and
        the last now.
        """
        self.count(who)
        shown = self._as_state(rows, who)
        for shard_id, shard in self.shards.items():
            found = {key: value for key, value in shown.items() if self.shard_of(key) == shard_id}
            begin = window.begins[shard_id]
            states = [
                state if keys is None else _only(state, keys)
                for state in (
                    *shard.states[begin : shard.end + 1],
                    *shard.publications.states_at(begin, shard.end),
                )
            ]
            if found not in states:
                self.fail(
                    _what_is_broken(found, states),
                    f"{who} showed {found} in {_short(shard_id)}; the log went from position {begin} to "
                    f"{shard.end} meanwhile, through {states}",
                )

    def saw_published(self, window: ReadWindow, rows: pa.Table, keys: Sequence[int], *, who: str) -> None:
        """Check a read of published snapshots: it may be behind, but not behind the base table.

        Every shard has to show one state that it has had.
        """
        self.count(who)
        shown = self._as_state(rows, who)
        for shard_id, shard in self.shards.items():
            merged = window.merged[shard_id]
            own = [key for key in keys if self.shard_of(key) == shard_id]
            found = _only(shown, own)
            states = [
                _only(state, own)
                for state in (
                    *shard.states[merged:],
                    *(state for one in shard.publications.since(merged) for state in one.states.values()),
                )
            ]
            if found not in states:
                self.fail(
                    _what_is_broken(found, states),
                    f"{who} showed {found} in {_short(shard_id)}; from position {merged} on, up to which it "
                    f"is merged, it has been {states}",
                )

    def saw_exactly(
        self, positions: Mapping[UUID, int], rows: pa.Table, *, who: str, keys: Sequence[int] | None = None
    ) -> None:
        """Check a read at a snapshot token: the state after exactly these positions."""
        self.count(who)
        shown = self._as_state(rows, who)
        for shard_id, shard in self.shards.items():
            found = {key: value for key, value in shown.items() if self.shard_of(key) == shard_id}
            position = positions.get(shard_id, 0)
            states = [shard.states[position], *shard.publications.states_at(position, position)]
            expected = [state if keys is None else _only(state, keys) for state in states]
            if found not in expected:
                self.fail(
                    "I8",
                    f"{who} at position {position} of {_short(shard_id)} showed {found}, not {expected}",
                )

    def delivered(self, shard_id: UUID, after: int, to: int, changes: Sequence[Change]) -> None:
        """Check a batch of the change feed: it is what the log has after one position and up to another."""
        self.count("batches of changes")
        shard = self.shards[shard_id]
        has_before = bool(changes) and changes[0].has_before
        state, expected = dict(shard.states[after]), []
        for position in range(after + 1, to + 1):
            entry = shard.entries[position - 1]
            for key, value, dead in (*entry.published, *entry.rows):
                before = state.get(key) if has_before else None
                expected.append(Change(position, entry.epoch, key, value, dead, before, has_before))
                state = self._after(state, [(key, value, dead)])
        if list(changes) != expected:
            self.fail(
                "feed",
                f"the feed delivered {list(changes)} after position {after} of {_short(shard_id)} up to "
                f"position {to}, not {expected}",
            )

    def caught_up(self, window: ReadWindow, positions: Mapping[UUID, int], *, who: str) -> None:
        """Check that an iteration of the feed has come as far as the log was when it began."""
        for shard_id, begin in window.begins.items():
            if positions.get(shard_id, 0) < begin:
                self.fail(
                    "I12",
                    f"{who} ended at position {positions.get(shard_id, 0)} of {_short(shard_id)}, which was "
                    f"at {begin} when it began",
                )

    def _as_state(self, rows: pa.Table, who: str) -> State:
        state: State = {}
        for key, value in zip(rows.column("id").to_pylist(), rows.column("value").to_pylist(), strict=True):
            if key in state:
                self.fail("I5", f"{who} showed key {key} twice, with {state[key]} and {value}")
            state[key] = value
        return state

    def cut(self, window: ReadWindow, positions: Mapping[UUID, int], *, who: str) -> None:
        """Check a cut across shards that was begun with ``window``: it is what stood at one moment."""
        moments_begin, moments_end = 0.0, math.inf
        for shard_id, shard in self.shards.items():
            position = positions.get(shard_id, 0)
            if not window.begins[shard_id] <= position <= shard.end:
                self.fail(
                    "I12",
                    f"{who} ends at position {position} of {_short(shard_id)}, which went from "
                    f"{window.begins[shard_id]} to {shard.end} meanwhile",
                )
                return
            if position:
                moments_begin = max(moments_begin, shard.landed_at[position - 1])
            if position < shard.end:
                moments_end = min(moments_end, shard.landed_at[position])
        if moments_begin >= moments_end:
            self.fail("I8", f"{who} at {dict(positions)} never was the state of all shards")

    def no_garbage_is_left(self) -> None:
        """Check that collections have got somewhere, after everything was merged and days went by."""
        for shard_id, shard in self.shards.items():
            names = self._store.names_below(layout.shard_directory(shard_id))
            kinds = [name.split("/")[2] for name in names]
            if not shard.manifests:
                continue
            covered = shard.manifests[-1].replay_after_wal_entry_position
            log = [
                position
                for name in names
                if name.split("/")[2] == "wal"
                and (position := layout.parse_wal_name(name.rsplit("/", 1)[-1])) <= covered
            ]
            generations = {kind for kind in kinds if kind not in ("wal", "manifest", "lease.json")}
            # The version hint, the two that tell where the merged generations end, two claims after them, and
            # the one with nothing left on its list. A round that deletes what was staged publishes one more
            # before: the first does with what was marked as left behind before it, the second with what the
            # first has marked or taken off the list. Nothing of that is left for the third.
            manifests = 6 + 2 * shard.has_staged
            # Of more claims and rounds since the generations ended, all stay: they are above the two.
            since = sum(one.replay_after_wal_entry_position == covered for one in shard.manifests)
            manifests = max(manifests, 2 + since)
            if generations or len(log) > 2 or kinds.count("manifest") > manifests:
                self.fail(
                    "I9",
                    f"left of {_short(shard_id)} after collections: generations {sorted(generations)}, "
                    f"covered log entries {sorted(log)}, {kinds.count('manifest')} manifests",
                )

    # The end

    def finish(self, rows: pa.Table, base: pa.Table) -> None:
        """Check what is left when everything has come to rest."""
        for number, by in self._under_spent_numbers.items():
            if by.alive and self._store.peek(version_path("", number)) is not None:
                self.fail("I7", f"version {number} of the base table, a spent number, was not taken back")
        self.saw(self.window(), rows, who="final read")
        final: State = {}
        for shard in self.shards.values():
            final |= shard.states[-1]
        if (state := self._as_state(base, "base table at rest")) != final:
            self.fail("I7", f"the base table at rest is {state}, not {final}")
        self.check_writes()

    def check_writes(self) -> None:
        """Check that every write is in the log as often as its caller was told."""
        for write in self.writes:
            landed = len(write.landed)
            if write.outcome == Outcome.ACKNOWLEDGED and landed != 1 and not (write.decides and not landed):
                self.fail("I1", f"an acknowledged write is in the log {landed} times")
            elif write.outcome == Outcome.REFUSED and landed:
                self.fail("I2", f"a refused write is in the log at {write.landed}")
            elif write.outcome == Outcome.INVALID and landed:
                self.fail("I10", f"a write that was refused as invalid is in the log at {write.landed}")
            if write.outcome == Outcome.IN_DOUBT:
                self.count("writes in doubt")


def _what_is_broken(found: State, states: Sequence[Mapping[int, int]]) -> str:
    """Return the invariant that a wrong read breaks."""
    for key in found:
        if not any(key in state for state in states):
            return "I6"
    for key in states[-1]:
        if key not in found and all(key in state for state in states):
            return "I12"
    return "I5"


def _parts(write: Write) -> list[Sequence[Row]]:
    """Return the rows of every generation that a write stages."""
    ends = list(accumulate(write.parts))
    return [write.rows[end - count : end] for end, count in zip(ends, write.parts, strict=True)]


def _is_free(state: Mapping[int, int], key: int) -> bool:
    """Whether the condition of a write that decides holds."""
    return key not in state or state[key] % 2 == 0


def _only(state: Mapping[int, int], keys: Sequence[int]) -> State:
    return {key: state[key] for key in keys if key in state}


def _short(shard: UUID) -> str:
    return f"shard {str(shard)[:4]}"
