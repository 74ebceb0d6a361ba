"""Storage of the responses to each ``Idempotency-Key``: objects in a bucket, a log in a local directory.

A response is kept as a note: the digest of the body, whether the write was done, and the response.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from weir.engine.concurrent_map import concurrent_map
from weir.engine.context import default_context
from weir.errors import (
    ConflictError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionError,
    WeirError,
)
from weir.service.answer_log import AnswerLog
from weir.storage.interface import ObjectStore
from weir.storage.local import LocalStore

__all__ = ["AnswerObjects", "Answers", "KeptAnswers"]

_MOST_KEYS = 1 << 23
"""Keys of local logs that a process has in memory, at 16 bytes each, for longer than some uses."""
_KEYS_OF_A_LOG = 100
"""Keys that take as much memory as a log without any."""
_USES_BETWEEN_COUNTS = 1_000
_ATTEMPTS = 16


class Answers(Protocol):
    """The notes of the keys of one namespace."""

    def find(
        self, keys: Collection[str], counts: Callable[[Mapping[str, Any]], bool]
    ) -> dict[str, dict[str, Any] | WeirError]:
        """Return the note in force of each key that has one which counts, or why it cannot be read."""
        ...

    def keep(self, notes: Mapping[str, Mapping[str, Any]], *, synced: bool) -> None:
        """Keep a note for each of several keys; ``synced`` says whether they survive a power loss.

        Raises
        ------
        WeirError
            If one cannot be kept.
        """
        ...


class AnswerObjects:
    """Notes as an object per key.

    Parameters
    ----------
    store : ObjectStore
        The root of the service.
    directory : str
        The directory of the objects.
    """

    def __init__(self, store: ObjectStore, directory: str) -> None:
        self._store = store
        self._directory = directory

    def read(self, key: str) -> dict[str, Any] | None:
        """Return the note of a key, or None if there is no readable one."""
        try:
            note: dict[str, Any] = msgspec.json.decode(bytes(memoryview(self._store.get(self._path(key)))))
        except (ObjectNotFoundError, msgspec.DecodeError):  # none, or one that a power loss has emptied
            return None
        return note

    def find(
        self, keys: Collection[str], counts: Callable[[Mapping[str, Any]], bool]
    ) -> dict[str, dict[str, Any] | WeirError]:
        """Return the note of each key that has one which counts, or why it cannot be read."""

        def read(key: str) -> dict[str, Any] | WeirError | None:
            try:
                note = self.read(key)
            except WeirError as error:
                return error
            return note if note is not None and counts(note) else None

        found = concurrent_map(read, [*keys], is_local=self._store.is_local, engine=default_context())
        return {key: note for key, note in zip(keys, found, strict=True) if note is not None}

    def keep(self, notes: Mapping[str, Mapping[str, Any]], *, synced: bool) -> None:
        """Keep a note for each of several keys."""

        def keep(key: str) -> WeirError | None:
            try:
                if notes[key]["done"]:
                    self._store.put(self._path(key), encoded(notes[key]))
                else:
                    self._keep_undone(key, notes[key])
            except WeirError as error:
                return error
            return None

        done = concurrent_map(keep, [*notes], is_local=self._store.is_local, engine=default_context())
        failed = [error for error in done if error is not None]
        if failed:
            raise failed[0]

    def _keep_undone(self, key: str, note: Mapping[str, Any]) -> None:
        """Keep a note of a write that may not be done, unless there is one that was done.

        Who was stopped before this, and has lost the namespace since, would replace that of another process.
        """
        for _ in range(_ATTEMPTS):
            with suppress(ObjectExistsError, PreconditionError):
                present = self._store.head(self._path(key))
                if present is None:
                    self.keep_first(key, note)
                    return
                known = self.read(key)
                if known is not None and known["done"] and known.get("table") == note.get("table"):
                    break
                self._store.compare_and_swap(self._path(key), encoded(note), present.version)
                return
        raise ConflictError(
            "another process has done a write with this Idempotency-Key meanwhile",
            where=self._path(key),
            hint="Nothing was written; send it again to hear what was done",
        )

    def keep_first(self, key: str, note: Mapping[str, Any]) -> None:
        """Keep a note if there is none.

        Raises
        ------
        ObjectExistsError
            If there is one.
        """
        self._store.put_if_absent(self._path(key), encoded(note))

    def forget(self, key: str) -> None:
        """Remove the note of a key."""
        self._store.delete([self._path(key)])

    def _path(self, key: str) -> str:
        return f"{self._directory}/{key}.json"


class KeptAnswers:
    """The notes of all namespaces below a root. Safe to use from many threads.

    Parameters
    ----------
    store : ObjectStore
        The root.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._logs: OrderedDict[str, AnswerLog] = OrderedDict()
        self._uses = 0
        self._lock = threading.Lock()

    def below(self, directory: str) -> Answers:
        """Return the notes of a directory."""
        store = self._store
        if not isinstance(store, LocalStore):
            return AnswerObjects(store, directory)
        with self._lock:
            log = self._logs.get(directory)
            if log is None:
                log = self._logs[directory] = AnswerLog(store, directory, _MOST_KEYS)
            self._logs.move_to_end(directory)
            self._uses += 1
            if self._uses % _USES_BETWEEN_COUNTS == 0:
                self._forget_some()
            return log

    def _forget_some(self) -> None:
        """Forget what was used longest ago, if too much is held: its files are read again when it is used."""
        held = sum(len(log) + _KEYS_OF_A_LOG for log in self._logs.values())
        while held > _MOST_KEYS and len(self._logs) > 1:
            held -= len(self._logs.popitem(last=False)[1]) + _KEYS_OF_A_LOG


def encoded(note: Mapping[str, Any]) -> bytes:
    """Return a note in JSON, in one line."""
    return msgspec.json.encode(note, enc_hook=str)
