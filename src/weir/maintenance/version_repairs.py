"""Repairs of base table versions: those torn by a power loss are set aside."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from weir.base.torn_versions import (
    TornVersion,
    newest_sound_version,
    set_aside,
    set_history_aside,
    unreadable_history,
)
from weir.storage.interface import ObjectStore

__all__ = ["SetAsideTornVersion", "SetAsideUnreadableManifest", "VersionRepair", "repair_versions"]


@dataclass(frozen=True, slots=True)
class VersionRepair:
    """Something about a version of the base table that is put right.

    Parameters
    ----------
    where : str
        The manifest of the version.
    message : str
        The problem, and the repair.
    version : int
        The version.
    """

    kind: ClassVar[str] = "version"

    where: str
    message: str
    version: int

    def to_dict(self) -> dict[str, Any]:
        """Return the repair as plain values that JSON can hold."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True, slots=True)
class SetAsideTornVersion(VersionRepair):
    """A version that a loss of power has torn is set aside; the newest sound one is published above it.

    What it had merged is merged again, from generations that are still there.
    """

    kind: ClassVar[str] = "torn version"

    @classmethod
    def of(cls, store: ObjectStore, torn: TornVersion) -> SetAsideTornVersion:
        """Return the repair of a version."""
        message = f"{torn.reason}: version {torn.version} is set aside"
        return cls(f"{store.uri}/{torn.path}", message, torn.version)


@dataclass(frozen=True, slots=True)
class SetAsideUnreadableManifest(VersionRepair):
    """Sets aside the unreadable manifest of an older version, which newer versions do not need."""

    kind: ClassVar[str] = "unreadable manifest"

    @classmethod
    def of(cls, store: ObjectStore, torn: TornVersion) -> SetAsideUnreadableManifest:
        """Return the repair of a version."""
        return cls(f"{store.uri}/{torn.path}", f"{torn.reason}: the manifest is set aside", torn.version)


def repair_versions(store: ObjectStore, *, dry_run: bool = False) -> list[VersionRepair]:
    """Set aside what a loss of power has torn, or say what would be.

    Parameters
    ----------
    store : ObjectStore
        The table's store. Only on local disk is there anything to repair.
    dry_run : bool, default False
        Whether only to say what would be done.

    Raises
    ------
    CorruptionError
        Something is damaged that this is no repair for. Nothing was changed.
    ConflictError
        Others kept committing meanwhile, and all they committed was torn.
    """
    if not store.is_local:
        return []
    found = newest_sound_version(store)
    torn = () if found is None else found.torn
    older = unreadable_history(store)
    if not dry_run:
        torn = set_aside(store) if torn else ()
        older = set_history_aside(store) if older else ()
    return [
        *(SetAsideTornVersion.of(store, one) for one in torn),
        *(SetAsideUnreadableManifest.of(store, one) for one in older),
    ]
