"""When a merge is worth what it costs.

A merge looks at every key of the base table, however few rows it brings, so of a small one each row costs
more the larger the base table is. If merges wait for a share of the base table's rows, they become rarer as
it grows, and what they cost for each merged row stays the same. Meanwhile reads have more generations to look
into, of which there is a most; and the rows of a table that gets no more have an age at which they are merged
all the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from weir.errors import OptionError
from weir.merge.age import oldest_age
from weir.merge.plan import MergeTask

__all__ = ["ALWAYS", "MergePolicy"]

_MAX_GENERATIONS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePolicy:
    """Says whether what is unmerged is to be merged now, or to wait for more.

    All of it is merged, or nothing: as soon as it is worth it, or a shard has many generations, or one of
    them is old.

    Parameters
    ----------
    min_share : float
        Rows that wait for a merge, as a share of the rows of the base table, from which on they are merged:
        with 0.02, one merged row for at most 50 rows that are looked at. Default 0: however few there are.
    max_generations : int
        Generations of one shard that wait for a merge, from which on all are merged, whatever their share:
        each is one more source for reads. Has to be below the writer option ``max_unmerged_generations``,
        at which writes wait. Default 64.
    max_age : timedelta, optional
        How long ago a generation was flushed, as :meth:`weir.Table.status` says it (``lag_seconds``), from
        which on all are merged, whatever their share. Default: they may wait for ever.

    Raises
    ------
    OptionError
        If the share is negative or no number, the generations are below 1, or the age is negative or no
        length of time.

    Examples
    --------
    >>> policy = MergePolicy(min_share=0.1)
    >>> policy.is_due((), base_rows=1_000)
    False
    """

    min_share: float = 0.0
    max_generations: int = _MAX_GENERATIONS
    max_age: timedelta | None = None

    def __post_init__(self) -> None:
        share, most = self.min_share, self.max_generations
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < math.inf:
            raise OptionError(
                f"a share of the base table is a number of at least 0, got {share!r}", where="min_share"
            )
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise OptionError(
                f"max_generations must be a whole number of at least 1, got {most!r}", where="max_generations"
            )
        age = self.max_age
        if age is not None and (not isinstance(age, timedelta) or age < timedelta(0)):
            raise OptionError(
                f"max_age is a length of time of at least 0, or None for no limit, got {age!r}",
                where="max_age",
                hint="Pass a timedelta",
            )

    def is_due(self, tasks: Sequence[MergeTask], *, base_rows: int) -> bool:
        """Whether to merge now. Asks the store only how old the generations are, and only if that decides.

        Parameters
        ----------
        tasks : sequence of MergeTask
            Everything that is unmerged.
        base_rows : int
            Rows of the base table.
        """
        generations: Counter[object] = Counter()
        for task in tasks:
            generations[task.shard_id] += len(task.generations)
        return bool(tasks) and (
            sum(task.rows for task in tasks) >= self.min_share * base_rows
            or max(generations.values()) >= self.max_generations
            or (self.max_age is not None and oldest_age(tasks) >= self.max_age)
        )


ALWAYS = MergePolicy()
"""Merges whatever there is."""
