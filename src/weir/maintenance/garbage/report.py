"""The report of a garbage collection: what is garbage, how much of it, why, and what is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from weir.base.versions import TableVersion
from weir.maintenance.garbage.policy import ShardPlan
from weir.maintenance.garbage.state import ShardState
from weir.notebook import ShownAsTable

__all__ = ["GarbageItem", "GarbageReport", "KeptItem", "report_of"]


@dataclass(frozen=True, slots=True)
class GarbageItem:
    """A piece of garbage.

    Parameters
    ----------
    kind : str
        ``"generation"``, ``"log entries"``, ``"shard manifests"``, ``"base table versions"`` or
        ``"expired pins"``.
    shard_id : UUID or None
        The shard it belongs to.
    name : str
        What it is.
    objects, nbytes : int
        The number of objects and their size in bytes. For versions of the base table only the manifests count
        as objects; the size is that of all files deleted with them, which a dry run does not know.
    reason : str
        Why it is garbage.
    deleted : bool
        Whether this collection deleted it, or would have; otherwise it is marked and waits for the horizon.
    """

    kind: str
    shard_id: UUID | None
    name: str
    objects: int
    nbytes: int
    reason: str
    deleted: bool


@dataclass(frozen=True, slots=True)
class KeptItem:
    """Something old that is still needed.

    Parameters
    ----------
    shard_id : UUID
        The shard it belongs to.
    name : str
        What it is.
    reason : str
        Why it is kept.
    """

    shard_id: UUID
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class GarbageReport(ShownAsTable):
    """What a garbage collection did, or would have done.

    Parameters
    ----------
    dry_run : bool
        Whether it was a dry run, which writes nothing.
    items : tuple of GarbageItem
        What is garbage.
    kept : tuple of KeptItem
        What is old but still needed.
    former_versions : int
        Versions of the base table below the newest that are not removed, each with all of its files. They
        stay for good unless ``version_retention`` is given.
    """

    dry_run: bool
    items: tuple[GarbageItem, ...]
    kept: tuple[KeptItem, ...]
    former_versions: int

    @property
    def deleted_objects(self) -> int:
        """Objects deleted; in a dry run, those that would have been."""
        return sum(item.objects for item in self.items if item.deleted)

    @property
    def deleted_bytes(self) -> int:
        """Their size in bytes."""
        return sum(item.nbytes for item in self.items if item.deleted)

    @property
    def waiting_objects(self) -> int:
        """Objects that are marked and wait for the horizon."""
        return sum(item.objects for item in self.items if not item.deleted)

    @property
    def waiting_bytes(self) -> int:
        """Their size in bytes."""
        return sum(item.nbytes for item in self.items if not item.deleted)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can hold."""
        plain = asdict(self)
        for one in (*plain["items"], *plain["kept"]):
            one["shard_id"] = None if one["shard_id"] is None else str(one["shard_id"])
        totals = {
            "deleted_objects": self.deleted_objects,
            "deleted_bytes": self.deleted_bytes,
            "waiting_objects": self.waiting_objects,
            "waiting_bytes": self.waiting_bytes,
        }
        return {**plain, **totals, "items": list(plain["items"]), "kept": list(plain["kept"])}


def report_of(
    dry_run: bool,
    plans: Sequence[tuple[ShardState, ShardPlan]],
    versions: Sequence[TableVersion],
    versions_nbytes: int,
    pins: Sequence[str],
    former_versions: int,
) -> GarbageReport:
    """Return the report of a collection.

    Parameters
    ----------
    dry_run : bool
        Whether it was a dry run, which writes nothing.
    plans : sequence of (ShardState, ShardPlan)
        Every shard, and what was to be done in it.
    versions : sequence of TableVersion
        Versions of the base table that were removed, ascending.
    versions_nbytes : int
        What was removed with them; 0 if that is not known.
    pins : sequence of str
        Paths of expired pins.
    former_versions : int
        Versions of the base table below the newest that stay.
    """
    items: list[GarbageItem] = []
    kept: list[KeptItem] = []
    for state, plan in plans:
        items += _items_of(state, plan)
        kept += [KeptItem(state.shard_id, one.name, one.reason) for one in plan.kept]
    if versions:
        # The library knows what only they reference, and reports what it has removed.
        nbytes = versions_nbytes or sum(one.nbytes for one in versions)
        name = _run("number", [one.version for one in versions], "base table version")
        reason = "superseded for longer than they are retained, without a tag, and pinned by nobody"
        items.append(GarbageItem("base table versions", None, name, len(versions), nbytes, reason, True))
    if pins:
        name = f"{len(pins)} expired {'pin' if len(pins) == 1 else 'pins'} of snapshots"
        items.append(GarbageItem("expired pins", None, name, len(pins), 0, "their time is over", True))
    return GarbageReport(dry_run, tuple(items), tuple(kept), former_versions)


def _items_of(state: ShardState, plan: ShardPlan) -> Iterator[GarbageItem]:
    shard_id = state.shard_id
    for name, reason in plan.directories.items():
        found = state.directories[name]
        text = f"generation {found.generation} in {name}"
        due = name in plan.due_directories
        yield GarbageItem("generation", shard_id, text, len(found.paths), found.nbytes, reason, due)
    for positions, due in _parted(plan.log, plan.due_log):
        entries = [state.log[position] for position in positions]
        yield GarbageItem(
            "log entries",
            shard_id,
            _run("position", positions, "log entry", "log entries"),
            sum(len(one.paths) for one in entries),
            sum(one.nbytes for one in entries),
            f"covered by generations that are merged, up to position {state.coverage.position}",
            due,
        )
    for versions, due in _parted(plan.manifests, plan.due_manifests):
        yield GarbageItem(
            "shard manifests",
            shard_id,
            _run("version", versions, "shard manifest"),
            len(versions),
            sum(state.manifests[version] for version in versions),
            f"superseded; the newest is version {state.latest.version}",
            due,
        )


def _run(number: str, numbers: Sequence[int], noun: str, plural: str = "") -> str:
    """Name a run of things by their numbers, ascending."""
    if len(numbers) == 1:
        return f"1 {noun}, {number} {numbers[0]}"
    return f"{len(numbers)} {plural or noun + 's'}, {number}s {numbers[0]} to {numbers[-1]}"


def _parted(garbage: Sequence[int], due: Sequence[int]) -> Iterator[tuple[Sequence[int], bool]]:
    """Yield the due ones and the waiting ones, if any, with whether they are due."""
    if due:
        yield due, True
    waiting = garbage[len(due) :]
    if waiting:
        yield waiting, False
