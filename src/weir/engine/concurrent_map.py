"""Asking storage for several things: at once where each is a round trip, one by one on local disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["concurrent_map"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_MOST_AT_ONCE = 16


def concurrent_map(
    ask: Callable[[Item], Answer], items: Sequence[Item], *, is_local: bool
) -> Iterator[Answer]:
    """Yield what is answered to every item, in their order.

    Parameters
    ----------
    ask : callable
        Takes an item and makes a round trip, or a few.
    items : sequence
        What to ask for.
    is_local : bool
        Whether the store is local: then an answer takes less time than handing a question to a thread, and
        each item is asked for when its answer is.

    Examples
    --------
    >>> list(concurrent_map(len, ["a", "bc"], is_local=False))
    [1, 2]
    """
    if is_local or len(items) < 2:
        yield from map(ask, items)
        return
    with ThreadPoolExecutor(min(len(items), _MOST_AT_ONCE), "weir-ask") as pool:
        yield from pool.map(ask, items)
