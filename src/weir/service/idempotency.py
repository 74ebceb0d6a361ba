"""Idempotent writes: the response to each ``Idempotency-Key`` is kept.

A write carries a mark of its key, which also identifies the body. A repeated request after a crash looks for
the mark: it is in the log entry with the documents, and remembered for the next 65,536 writes. So many keyed
writes can share a log entry, and their responses are recorded afterwards.

The effect of a write that does not depend on existing documents follows from its body, and so does its
response; the record of it need not survive a power loss, because the log does. For other writes the response
is stored before the write: if the mark is found, that response is the right one. The same holds if a write
creates its namespace. For a write that changes nothing, and so leaves no mark, its completion is stored at
once.

A response belongs to its table: for a namespace that was deleted and created again, a key is new.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from weir import Source
from weir.engine.concurrent_map import concurrent_map
from weir.engine.context import default_context
from weir.engine.logs import get_logger
from weir.errors import WeirError
from weir.namespaces import MarkedWrite, Namespace, Write, Written, WrittenOnce
from weir.namespaces.names import directory_of
from weir.service.kept_answers import KeptAnswer, keep_together, key_digest, noting_store, with_records
from weir.service.refusals import Refusal
from weir.storage.interface import ObjectStore

__all__ = ["IdempotentWrites", "KeyedWrite"]

_log = get_logger(__name__)
_MOST_WAITING = 256


@dataclass(frozen=True, slots=True)
class KeyedWrite:
    """A write with an ``Idempotency-Key``.

    Parameters
    ----------
    write : Write
        The write.
    caller : str
        Id of the caller's API key.
    key, body
        The key and body of the request.
    """

    write: Write
    caller: str
    key: str
    body: bytes


class IdempotentWrites:
    """The kept responses of writes below a root.

    Parameters
    ----------
    store : ObjectStore
        The root.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._quick = noting_store(store)
        self._noting = ThreadPoolExecutor(1, thread_name_prefix="weir-done")
        self._waiting = threading.Semaphore(_MOST_WAITING)
        self._under_way: set[str] = set()
        self._ended = threading.Condition()

    def write(self, namespace: Namespace, write: Write, caller: str, key: str, body: bytes) -> Written:
        """Make a write, unless it was made already; return its result.

        Parameters
        ----------
        namespace : Namespace
            The namespace to write.
        write, caller, key, body
            As of :class:`KeyedWrite`.

        Raises
        ------
        Refusal
            400 if the key is not valid; 422 if it was used with another body before.
        """
        (outcome,) = self.write_many(namespace, [KeyedWrite(write, caller, key, body)])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def write_many(
        self, namespace: Namespace, writes: Sequence[KeyedWrite]
    ) -> list[Written | Refusal | WeirError]:
        """Make several writes, each as by :meth:`write`; they share log entries if possible.

        Returns
        -------
        list of Written, Refusal or WeirError
            The result of each.
        """
        outcomes: dict[int, Written | Refusal | WeirError] = {}
        left: dict[int, _Attempt] = {}
        for at, one in enumerate(writes):
            try:
                left[at] = self._attempt(namespace, one)
            except Refusal as refusal:
                outcomes[at] = refusal
        while left:
            # Of several requests of one key the first: whoever comes after it finds what it has done.
            first = {one.kept.path: at for at, one in reversed(left.items())}
            now = {at: left.pop(at) for at in sorted(first.values())}
            with self._alone_with(first):
                outcomes.update(self._done(namespace, now))
        return [outcomes[at] for at in range(len(writes))]

    def _attempt(self, namespace: Namespace, asked: KeyedWrite) -> _Attempt:
        digest = key_digest(asked.caller, asked.key)
        path = f"idempotency/{directory_of(namespace.name)}/{digest}.json"
        store = self._store if asked.write.looks_before else self._quick
        return _Attempt(asked.write, digest, KeptAnswer.of(store, path, asked.body))

    def _done(
        self, namespace: Namespace, attempts: Mapping[int, _Attempt]
    ) -> dict[int, Written | Refusal | WeirError]:
        outcomes: dict[int, Written | Refusal | WeirError] = {}
        left: list[tuple[int, _Attempt]] = []
        records = self._records(namespace, [one.kept for one in attempts.values()])
        for at, one in attempts.items():
            known = records.get(one.kept.path)
            if not isinstance(known, dict | None):
                outcomes[at] = known
            elif known is not None and known["done"]:
                outcomes[at] = Written(**known["answer"])
            else:
                left.append((at, one if known is None else replace(one, known=known)))
        marked = [one.marked(one.kept.mark(one.digest)) for _, one in left]
        notes: list[_Note] = []
        for (at, one), outcome in zip(left, namespace.write_many_once(marked), strict=True):
            try:
                once = one.of_this_body(namespace, outcome)
            except (Refusal, WeirError) as error:
                outcomes[at] = error
                continue
            outcomes[at] = written = one.answer(once)
            is_first = one.known is None and not one.write.looks_before
            kept = one.kept if one.kept.store is self._quick else replace(one.kept, store=self._quick)
            notes.append(_Note(kept, {"answer": _told(written), "table": once.table}, is_first))
        if notes:
            self._note_done(notes)
        return outcomes

    def _records(
        self, namespace: Namespace, answers: Sequence[KeptAnswer]
    ) -> dict[str, dict[str, Any] | Refusal | WeirError | None]:
        """Return the record of each that has one, or why it cannot be read, by its path."""

        def read(one: KeptAnswer) -> dict[str, Any] | Refusal | WeirError | None:
            try:
                return one.read(lambda note: _is_of(note, namespace))
            except (Refusal, WeirError) as error:
                return error

        try:
            present = with_records(self._store, answers)
        except WeirError:
            present = answers  # each is told what is wrong with its own
        found = concurrent_map(read, present, is_local=self._store.is_local, engine=default_context())
        return {one.path: record for one, record in zip(present, found, strict=True)}

    def _note_done(self, notes: Sequence[_Note]) -> None:
        def note(group: Sequence[_Note]) -> None:
            try:
                if len(group) > 1:
                    keep_together([(one.kept, one.answer) for one in group])
                else:
                    group[0].kept.keep(done=True, **group[0].answer)
            except WeirError as error:
                _log.warning("idempotency.not_noted", error=type(error).__name__)

        def note_all() -> None:
            is_local = self._quick.is_local
            shared = [one for one in notes if is_local and one.is_first]
            groups = [[one] for one in notes if not (is_local and one.is_first)]
            if shared:
                groups.append(shared)
            for _ in concurrent_map(note, groups, is_local=is_local, engine=default_context()):
                pass

        def note_in_turn() -> None:
            try:
                note_all()
            finally:
                self._waiting.release()

        if not self._waiting.acquire(blocking=False):
            note_all()
            return
        try:
            self._noting.submit(note_in_turn)
        except RuntimeError:  # it was closed meanwhile
            note_in_turn()

    @contextmanager
    def _alone_with(self, paths: Collection[str]) -> Iterator[None]:
        """Serialise requests of one key: a waiting one finds the result of the other."""
        with self._ended:
            # All at once, or none: nobody waits with a part of them.
            while not self._under_way.isdisjoint(paths):
                self._ended.wait()
            self._under_way.update(paths)
        try:
            yield
        finally:
            with self._ended:
                self._under_way.difference_update(paths)
                self._ended.notify_all()

    def close(self) -> None:
        """Write the pending records."""
        self._noting.shutdown(wait=True)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A request with a key, and the record of earlier ones."""

    write: Write
    digest: str
    kept: KeptAnswer
    known: Mapping[str, Any] | None = None

    def marked(self, source: Source) -> MarkedWrite:
        def decided(written: Written, changes: bool, table: str) -> None:
            # An attempt that failed may have found other documents.
            if not self._is_known(table) or self.write.looks_before:
                self.kept.keep(done=not changes, answer=_told(written), table=table)

        return MarkedWrite(self.write, source, decided)

    def of_this_body(self, namespace: Namespace, outcome: WrittenOnce | WeirError) -> WrittenOnce:
        """Return the result of the write; raise its error, or a refusal if the key came with another body."""
        if isinstance(outcome, WeirError):
            raise outcome
        if outcome.first is None or self.kept.has_mark(outcome.first):
            return outcome
        # The key was used for something else so long ago that it may be used again.
        return namespace.write_once(self.marked(Source.once(self.kept.write_name(self.digest))))

    def answer(self, once: WrittenOnce) -> Written:
        counts = once.first is not None or not self.write.looks_before
        if counts and self.known is not None and self._is_known(once.table):
            return Written(**self.known["answer"])
        return once.written

    def _is_known(self, table: str) -> bool:
        return self.known is not None and self.known.get("table", table) == table


@dataclass(frozen=True, slots=True)
class _Note:
    """The record of a completed write."""

    kept: KeptAnswer
    answer: Mapping[str, Any]
    is_first: bool
    """Whether there was no record of its key before."""


def _is_of(note: Mapping[str, Any], namespace: Namespace) -> bool:
    """Whether a record belongs to the namespace's current table; records without a name do."""
    if "table" not in note:
        return True
    opened = namespace.find()
    return opened is not None and opened.definition.table == note["table"]


_FIELDS = tuple(Written.__dataclass_fields__)
_values_of = attrgetter(*_FIELDS)


def _told(written: Written) -> dict[str, object]:
    return dict(zip(_FIELDS, _values_of(written), strict=True))
