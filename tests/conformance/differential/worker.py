"""A process that plays one history after the other."""

from __future__ import annotations

import gc

from tests.conformance.differential.history import find

__all__ = ["begin", "find_and_collect"]


def begin() -> None:
    """Have no garbage collected amid a history: looking through all modules costs a tenth of its time."""
    gc.collect()
    gc.freeze()
    gc.disable()


def find_and_collect(seed: int, length: int, *, cut: bool) -> str | None:
    """Play the history of a seed; return what is wrong, in words."""
    found = find(seed, length, cut=cut)
    gc.collect()
    return found
