"""The live objects of a kind, tracked across threads."""

from __future__ import annotations

from typing import Generic, TypeVar
from weakref import ref

__all__ = ["Living"]

One = TypeVar("One")


class Living(Generic[One]):
    """A set that keeps nothing alive, and can be read while other threads add to it.

    A ``WeakSet`` cannot: iterating over it may fail because its size changes.

    Examples
    --------
    >>> class Writer: ...
    >>> living, one = Living(), Writer()
    >>> living.add(one); living.add(Writer())
    >>> living.all() == [one], one in living
    (True, True)
    """

    def __init__(self) -> None:
        # Adding, removing and copying are atomic for other threads, and need no lock: objects may be
        # collected, and removed, in the middle of any operation.
        self._refs: dict[int, ref[One]] = {}

    def add(self, one: One) -> None:
        """Add one."""
        refs, key = self._refs, id(one)
        refs[key] = ref(one, lambda _: refs.pop(key, None))

    def discard(self, one: One) -> None:
        """Remove one, if it is there."""
        self._refs.pop(id(one), None)

    def __contains__(self, one: object) -> bool:
        """Whether this very object is there."""
        return id(one) in self._refs

    def all(self) -> list[One]:
        """Return the current ones."""
        found = (known() for known in self._refs.copy().values())
        return [one for one in found if one is not None]
