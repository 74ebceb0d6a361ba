"""When a table that looks after itself is merged, compacted and collected."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta

from weir.errors import OptionError
from weir.maintenance.garbage.garbage import DEFAULT_HORIZON
from weir.merge.policy import MergePolicy

__all__ = ["UpkeepPolicy"]

_MERGE = MergePolicy(min_share=0.1, max_generations=16, max_age=timedelta(minutes=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepPolicy:
    """How often each part of the upkeep of a table is due, while it is written.

    Nothing is due of a table that nobody writes, but for a look every now and then.

    Parameters
    ----------
    merge : MergePolicy
        Says whether what was flushed is merged now. Default: as soon as it is a tenth of the base table, a
        shard has 16 generations, or one of them is a minute old.
    compact_every : timedelta
        How long after a merge the next compaction comes. Default 5 minutes.
    collect_every : timedelta
        How long after a merge the next garbage collection comes. Default 5 minutes.
    horizon : timedelta
        How long garbage stays after it was marked. Default 15 minutes.
    look_every : timedelta
        How often to look at a table for what writers elsewhere have left, and for logs of writers that have
        died. Default 5 minutes.

    Raises
    ------
    OptionError
        If a length of time is none, or not above 0.
    """

    merge: MergePolicy = _MERGE
    compact_every: timedelta = timedelta(minutes=5)
    collect_every: timedelta = timedelta(minutes=5)
    horizon: timedelta = DEFAULT_HORIZON
    look_every: timedelta = timedelta(minutes=5)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "merge":
                if not isinstance(value, MergePolicy):
                    raise OptionError(f"merge must be a MergePolicy, got {value!r}", where="merge")
            elif not isinstance(value, timedelta) or value <= timedelta(0):
                raise OptionError(
                    f"{field.name} is a length of time above 0, got {value!r}",
                    where=field.name,
                    hint="Pass a timedelta",
                )
