"""Decides when a merge is worth its cost.

A merge examines every key of the base table, however few rows it brings, so the larger the base table, the
more each row of a small merge costs. If merges wait for a share of the base table's rows, they become rarer
as it grows, and the cost per merged row stays the same. Meanwhile reads have more generations to look into,
so their number is bounded; and rows of a table that receives no more writes are merged once they reach a
certain age.
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
    """Decides whether to merge now or to wait for more rows.

    A merge takes everything or nothing. It is due when it is worth its cost, when a shard has many
    generations, or when one of them is old.

    Parameters
    ----------
    min_share : float
        Merge once the unmerged rows are at least this share of the base table's rows: 0.02 merges one row for
        at most 50 rows examined. Default 0: merge however few there are.
    max_generations : int
        Merge once a shard has this many unmerged generations, whatever their share: each is one more source
        for reads. Must be below the writer option ``max_unmerged_generations``, at which writes wait. Default
        64.
    max_age : timedelta, optional
        Merge once a generation was flushed this long ago (``lag_seconds`` of :meth:`weir.Table.status`),
        whatever the share. Default: generations may wait for ever.

    Raises
    ------
    OptionError
        If the share is negative or not a number, ``max_generations`` is below 1, or the age is negative or
        not a length of time.

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
