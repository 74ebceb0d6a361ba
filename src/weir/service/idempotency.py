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
from weir.engine.logs import get_logger
from weir.errors import WeirError
from weir.namespaces import MarkedWrite, Namespace, Write, Written, WrittenOnce
from weir.namespaces.names import directory_of
from weir.service.kept_answers import Answers, KeptAnswers
from weir.service.keyed_body import KeyedBody
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
        self._kept = KeptAnswers(store)
        self._is_local = store.is_local
        self._noting = ThreadPoolExecutor(1, thread_name_prefix="weir-done")
        self._waiting = threading.Semaphore(_MOST_WAITING)
        self._under_way: set[tuple[str, str]] = set()
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
        directory = f"idempotency/{directory_of(namespace.name)}"
        answers = self._kept.below(directory)
        for at, one in enumerate(writes):
            try:
                left[at] = _Attempt(one.write, KeyedBody.of(one.caller, one.key, one.body), answers)
            except Refusal as refusal:
                outcomes[at] = refusal
        while left:
            # Of several requests of one key the first: whoever comes after it finds what it has done.
            first = {one.body.key: at for at, one in reversed(left.items())}
            now = {at: left.pop(at) for at in sorted(first.values())}
            with self._alone_with({(directory, key) for key in first}):
                outcomes.update(self._done(namespace, answers, now))
        return [outcomes[at] for at in range(len(writes))]

    def _done(
        self, namespace: Namespace, answers: Answers, attempts: Mapping[int, _Attempt]
    ) -> dict[int, Written | Refusal | WeirError]:
        outcomes: dict[int, Written | Refusal | WeirError] = {}
        left: list[tuple[int, _Attempt]] = []
        keys = [one.body.key for one in attempts.values()]
        known = answers.find(keys, lambda note: _is_of(note, namespace))
        for at, one in attempts.items():
            note = known.get(one.body.key)
            if isinstance(note, WeirError):
                outcomes[at] = note
            elif note is None:
                left.append((at, one))
            else:
                try:
                    one.body.check(note)
                except Refusal as refusal:
                    outcomes[at] = refusal
                    continue
                if note["done"]:
                    outcomes[at] = Written(**note["answer"])
                else:
                    left.append((at, replace(one, known=note)))
        marked = [one.marked(one.body.mark) for _, one in left]
        notes: dict[str, Mapping[str, Any]] = {}
        for (at, one), outcome in zip(left, namespace.write_many_once(marked), strict=True):
            try:
                once = one.of_this_body(namespace, outcome)
            except (Refusal, WeirError) as error:
                outcomes[at] = error
                continue
            outcomes[at] = written = one.answer(once)
            notes[one.body.key] = one.body.note(done=True, answer=_told(written), table=once.table)
        if notes:
            self._note_done(answers, notes)
        return outcomes

    def _note_done(self, answers: Answers, notes: Mapping[str, Mapping[str, Any]]) -> None:
        def note() -> None:
            try:
                answers.keep(notes, synced=False)
            except WeirError as error:
                _log.warning("idempotency.not_noted", error=type(error).__name__)

        def note_in_turn() -> None:
            try:
                note()
            finally:
                self._waiting.release()

        # On a disk it takes less than to hand it over.
        if self._is_local or not self._waiting.acquire(blocking=False):
            note()
            return
        try:
            self._noting.submit(note_in_turn)
        except RuntimeError:  # it was closed meanwhile
            note_in_turn()

    @contextmanager
    def _alone_with(self, keys: Collection[tuple[str, str]]) -> Iterator[None]:
        """Serialise requests of one key: a waiting one finds the result of the other."""
        with self._ended:
            # All at once, or none: nobody waits with a part of them.
            while not self._under_way.isdisjoint(keys):
                self._ended.wait()
            self._under_way.update(keys)
        try:
            yield
        finally:
            with self._ended:
                self._under_way.difference_update(keys)
                self._ended.notify_all()

    def close(self) -> None:
        """Write the pending records."""
        self._noting.shutdown(wait=True)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A request with a key, and the record of earlier ones."""

    write: Write
    body: KeyedBody
    answers: Answers
    known: Mapping[str, Any] | None = None

    def marked(self, source: Source) -> MarkedWrite:
        def decided(written: Written, changes: bool, table: str) -> None:
            # An attempt that failed may have found other documents.
            if not self._is_known(table) or self.write.looks_before:
                note = self.body.note(done=not changes, answer=_told(written), table=table)
                self.answers.keep({self.body.key: note}, synced=self.write.looks_before)

        return MarkedWrite(self.write, source, decided)

    def of_this_body(self, namespace: Namespace, outcome: WrittenOnce | WeirError) -> WrittenOnce:
        """Return the result of the write; raise its error, or a refusal if the key came with another body."""
        if isinstance(outcome, WeirError):
            raise outcome
        if outcome.first is None or self.body.has_mark(outcome.first):
            return outcome
        # The key was used for something else so long ago that it may be used again.
        return namespace.write_once(self.marked(Source.once(self.body.write_name)))

    def answer(self, once: WrittenOnce) -> Written:
        counts = once.first is not None or not self.write.looks_before
        if counts and self.known is not None and self._is_known(once.table):
            return Written(**self.known["answer"])
        return once.written

    def _is_known(self, table: str) -> bool:
        return self.known is not None and self.known.get("table", table) == table


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
