"""Stores for tests: one on which something happens in between, and one that loses answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weir.errors import StorageError
from weir.storage.counting import CountingStore
from weir.storage.interface import Bytes, ObjectMeta, ObjectStore

__all__ = ["HookedStore", "LossyStore"]


class HookedStore(CountingStore):
    """Calls a function after every look at an object of a shard's log."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.after_probe: Callable[[], None] = lambda: None

    def head(self, path: str) -> ObjectMeta | None:
        found = super().head(path)
        self._probed(path)
        return found

    def get_range(self, path: str, start: int, length: int) -> Bytes:
        try:
            return super().get_range(path, start, length)
        finally:
            self._probed(path)

    def _probed(self, path: str) -> None:
        if "/wal/" in path and path.endswith(".arrow"):
            self.after_probe()


class LossyStore(CountingStore):
    """Performs the next conditional writes and then says that something went wrong.

    ``lose`` names what is said: a failure of the store, or what a client is told that tries again
    by itself and finds its own object.
    """

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.lose: list[type[StorageError]] = []

    def _answer(self) -> None:
        if self.lose:
            raise self.lose.pop(0)("the answer was lost")

    def put_if_absent(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        super().put_if_absent(path, data)
        self._answer()

    def compare_and_swap(self, path: str, data: Bytes | Sequence[Bytes], expected: str) -> str:
        version = super().compare_and_swap(path, data, expected)
        self._answer()
        return version
