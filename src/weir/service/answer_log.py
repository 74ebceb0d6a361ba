"""Responses to each ``Idempotency-Key`` in a local directory: files that are only ever appended to.

A file with a name for each key costs several times as much: its name is found missing, made, made durable
with the next write of the log, and removed a day later. Here the notes of a group of writes are one append,
and the keys with a note are found in memory, with 16 bytes each.

Each process appends to files of its own, a new one every hour, so that those of a day ago can be removed
whole. Another process reads them when it takes the namespace over. Of the notes of a key, one of a write that
was done is in force, else the newest: who was stopped before its note, and has lost the namespace since, adds
it late.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from weir.errors import ObjectNotFoundError, WeirError
from weir.service.answer_index import AnswerIndex, lines_of, number_of
from weir.storage.local import LocalStore

__all__ = ["AnswerLog"]

_BLOCK_BYTES = 8 << 20
_NOTE_BYTES = 4096
_HOURS_OPEN = 2
"""Hours from its first one on after which nobody appends to a file any more."""


@dataclass(slots=True)
class _File:
    """A file, and which keys it has notes of."""

    path: str
    index: AnswerIndex = field(default_factory=AnswerIndex)
    size: int = 0
    """How much of it is indexed, in bytes."""


class AnswerLog:
    """The notes of the keys of a namespace. Safe to use from many threads.

    Parameters
    ----------
    store : LocalStore
        The root of the service.
    directory : str
        The directory of the files.
    most_keys : int
        Keys that are held in memory; of more, those of the oldest files are forgotten.
    """

    def __init__(self, store: LocalStore, directory: str, most_keys: int) -> None:
        self._store = store
        self._directory = directory
        self._most_keys = most_keys
        self._lock = threading.Lock()
        self._files: dict[str, _File] = {}
        self._complete: set[str] = set()
        self._own: _File | None = None

    def __len__(self) -> int:
        """Return the number of keys that are held in memory."""
        return sum(len(one.index) for one in [*self._files.values()])

    def find(
        self, keys: Collection[str], counts: Callable[[Mapping[str, Any]], bool]
    ) -> dict[str, dict[str, Any] | WeirError]:
        """Return the note in force of each key that has one, or why it cannot be read."""
        numbers = [number_of(key) for key in keys]
        with self._lock:
            try:
                self._refresh()
            except WeirError as error:
                return dict.fromkeys(keys, error)
            places = [(one.path, one.index.find(numbers)) for one in self._files.values()]
        found: dict[str, dict[str, Any] | WeirError] = {}
        for path, begins in places:
            for key, number in zip(keys, numbers, strict=True) if begins else ():
                begin = begins.get(number)
                known = found.get(key)
                if begin is None or isinstance(known, WeirError):
                    continue
                try:
                    note = self._read(path, begin, key)
                except WeirError as error:
                    found[key] = error
                    continue
                if note is not None and counts(note) and (known is None or _rank(known) < _rank(note)):
                    found[key] = note
        return found

    def keep(self, notes: Mapping[str, Mapping[str, Any]], *, synced: bool) -> None:
        """Keep a note for each of several keys; ``synced`` says whether they survive a power loss.

        Raises
        ------
        StorageError
            If they cannot be kept.
        """
        encode, at = msgspec.json.encode, time.time_ns()
        lines = [
            b"%b %b\n" % (key.encode(), encode({**note, "at": at}, enc_hook=str))
            for key, note in notes.items()
        ]
        with self._lock:
            own = self._own_file(f"{at // 3_600_000_000_000:08d}")
            try:
                begin = self._store.append(own.path, b"".join(lines), synced=synced)
            except WeirError:
                self._own = None  # what follows a torn note would be taken for a part of it
                raise
            begins = []
            for line in lines:
                begins.append(begin)
                begin += len(line)
            own.index.add([*map(number_of, notes)], begins)
            own.size = begin

    def _own_file(self, hour: str) -> _File:
        own = self._own
        if own is None or not own.path.startswith(f"{self._directory}/{hour}-"):
            path = f"{self._directory}/{hour}-{secrets.token_hex(8)}.answers"
            own = self._own = self._files[path] = _File(path)
        return own

    def _refresh(self) -> None:
        """Index what other processes have appended, and forget files that were removed."""
        present = {meta.path: meta.size for meta in self._store.list(self._directory)}
        self._files = {path: one for path, one in self._files.items() if path in present}
        if self._own is not None and self._own.path not in present:
            self._own = None
        self._complete &= present.keys()
        hour = int(time.time() // 3600)
        for path, size in present.items():
            if path in self._complete:
                continue
            if path not in self._files or self._files[path].size < size:
                self._index(self._files.setdefault(path, _File(path)), size)
            first, _, _ = path.rpartition("/")[2].partition("-")
            if first.isdecimal() and int(first) + _HOURS_OPEN <= hour:
                self._complete.add(path)
        held = len(self)
        for path in sorted(self._files)[:-1] if held > self._most_keys else ():
            if held <= self._most_keys:
                break
            held -= len(self._files[path].index)
            self._files[path].index = AnswerIndex()

    def _index(self, one: _File, size: int) -> None:
        rest = b""
        while one.size + len(rest) < size:
            begin = one.size + len(rest)
            try:
                block = self._store.get_range(one.path, begin, min(_BLOCK_BYTES, size - begin))
            except ObjectNotFoundError:  # it was removed meanwhile
                return
            if not len(block):
                return
            rest += bytes(memoryview(block))
            numbers, begins, used = lines_of(rest)
            one.index.add(numbers, begins + one.size)
            one.size += used
            rest = rest[used:]

    def _read(self, path: str, begin: int, key: str) -> dict[str, Any] | None:
        """Return a note; None if it is not of this key, or a power loss has taken it."""
        line = b"".join(self._parts(path, begin))
        if line[: len(key)] != key.encode():
            return None
        try:
            note: dict[str, Any] = msgspec.json.decode(line[len(key) :])
        except msgspec.DecodeError:
            return None
        return note if note.keys() >= {"body", "done", "at"} else None

    def _parts(self, path: str, begin: int) -> Iterator[bytes]:
        length = _NOTE_BYTES
        while True:
            try:
                part = bytes(memoryview(self._store.get_range(path, begin, length)))
            except ObjectNotFoundError:  # a day has passed
                return
            line, end, _ = part.partition(b"\n")
            yield line
            if end or not part:
                return
            begin, length = begin + len(part), 4 * length


def _rank(note: Mapping[str, Any]) -> tuple[bool, int]:
    return note["done"], note["at"]
