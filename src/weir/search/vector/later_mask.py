"""The dead rows of the base table, found out while it is searched for more rows than are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeVar

from weir.engine.concurrent_map import ask_both
from weir.lsm.deletion_mask import DeletionMask
from weir.storage.interface import ObjectStore

__all__ = ["LaterMask"]

Found = TypeVar("Found")


@dataclass(eq=False)
class LaterMask:
    """Dead rows that need not be known before a search begins, on a store where every request takes long.

    Parameters
    ----------
    load : callable
        Finds them out.
    most : int
        About how many there are at most. A wrong number costs time, and changes no result.
    store : ObjectStore
        The table's store.
    """

    load: Callable[[], DeletionMask]
    most: int
    store: ObjectStore

    @cached_property
    def known(self) -> DeletionMask:
        """The dead rows."""
        return self.load()

    def beside(self, search: Callable[[], Found]) -> Found:
        """Find them out while something is searched for; return what is found."""
        found, _ = ask_both(
            search, lambda: self.known, is_local=self.store.is_local, engine=self.store.engine
        )
        return found

    @property
    def is_awaited(self) -> bool:
        """Whether to begin a search before they are known."""
        return not self.store.is_local and self.most > 0 and "known" not in self.__dict__

    def __reduce__(self) -> tuple[type[LaterMask], tuple[object, ...]]:
        """Take along what is known: nothing is found out elsewhere."""
        return LaterMask, (partial(DeletionMask, self.known.row_ids), 0, self.store)

    def __len__(self) -> int:
        """Return how many they are."""
        return len(self.known)
