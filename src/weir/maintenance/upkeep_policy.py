"""When background upkeep merges, compacts and garbage-collects a table."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from datetime import timedelta

from weir.errors import OptionError
from weir.maintenance.garbage.garbage import DEFAULT_HORIZON
from weir.merge.policy import MergePolicy

__all__ = ["MAINTENANCE_VARIABLE", "UpkeepPolicy", "chosen_policy"]

MAINTENANCE_VARIABLE = "WEIR_MAINTENANCE"
"""The environment variable that switches upkeep on or off, if no option does."""

_MERGE = MergePolicy(min_share=0.1, max_generations=16, max_age=timedelta(minutes=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepPolicy:
    """How often each upkeep job runs on a table while it is being written.

    On an idle table nothing is due except an occasional check.

    Parameters
    ----------
    merge : MergePolicy
        Decides whether flushed rows are merged now. Default: as soon as they are a tenth of the base table, a
        shard has 16 generations, or a generation is a minute old.
    compact_every : timedelta
        Time from a merge to the next compaction. Default 5 minutes.
    collect_every : timedelta
        Time from a merge to the next garbage collection. Default 5 minutes.
    horizon : timedelta
        How long garbage is kept after it was marked. Default 15 minutes.
    version_retention : timedelta, optional
        How long a version of the base table is kept after it was superseded, at least the horizon. Tags and
        pinned snapshots keep theirs. Default: no version is removed.
    look_every : timedelta
        How often to check a table for flushes by writers elsewhere and for logs of dead writers. Default 5
        minutes.
    max_share : float
        The largest share of the time that the engine's upkeep thread may work, for all tables together: after
        work it pauses, though never for more than a minute. Default 0.5.

    Raises
    ------
    OptionError
        If a duration is not one or not above 0, versions are kept for less than the horizon, or the share is
        not above 0 and at most 1.
    """

    merge: MergePolicy = _MERGE
    compact_every: timedelta = timedelta(minutes=5)
    collect_every: timedelta = timedelta(minutes=5)
    horizon: timedelta = DEFAULT_HORIZON
    version_retention: timedelta | None = None
    look_every: timedelta = timedelta(minutes=5)
    max_share: float = 0.5

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "version_retention" and value is None:
                continue
            if field.name == "merge":
                if not isinstance(value, MergePolicy):
                    raise OptionError(f"merge must be a MergePolicy, got {value!r}", where="merge")
            elif field.name == "max_share":
                if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
                    raise OptionError(f"max_share is above 0 and at most 1, got {value!r}", where="max_share")
            elif not isinstance(value, timedelta) or value <= timedelta(0):
                raise OptionError(
                    f"{field.name} is a length of time above 0, got {value!r}",
                    where=field.name,
                    hint="Pass a timedelta",
                )
        if self.version_retention is not None and self.version_retention < self.horizon:
            raise OptionError(
                f"version_retention is at least the horizon, {self.horizon}, got {self.version_retention}",
                where="version_retention",
            )


def chosen_policy(maintenance: object) -> UpkeepPolicy | None:
    """Return the policy that an option selects, or None for no upkeep.

    Parameters
    ----------
    maintenance : {"auto", "off"}, UpkeepPolicy or None
        The option. None: the environment variable ``WEIR_MAINTENANCE``, or ``"auto"``.

    Raises
    ------
    OptionError
        If it is none of these.
    """
    where = "maintenance"
    if maintenance is None:
        maintenance, where = os.environ.get(MAINTENANCE_VARIABLE) or "auto", MAINTENANCE_VARIABLE
    if isinstance(maintenance, UpkeepPolicy):
        return maintenance
    if maintenance in ("auto", "off"):
        return UpkeepPolicy() if maintenance == "auto" else None
    raise OptionError(
        f'maintenance must be "auto", "off" or an UpkeepPolicy, got {maintenance!r}',
        where=where,
        hint=None if where == "maintenance" else 'The variable says "auto" or "off"',
    )
