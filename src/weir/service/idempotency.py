"""Writes that may be repeated: of one ``Idempotency-Key`` the answer is kept.

The answer is stored before the write is done, and the write carries a mark of the key. Whoever repeats a
request after a crash looks for the mark: if it is there, the stored answer is the one. That the write was
done is noted after its answer was given: for the next 65,536 writes the mark tells the same. A write that
changes nothing leaves no mark: that it was done is stored with its answer.

What is done by a write that does not look at the documents follows from its body, and so does the answer: its
notes need not survive a loss of power, which what the log tells survives.

An answer is that of the table it was given for: to a namespace that was deleted and made anew, a key is new.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from weir import Source
from weir.engine.logs import get_logger
from weir.errors import WeirError
from weir.namespaces import Namespace, Write, Written
from weir.namespaces.names import directory_of
from weir.service.kept_answers import KeptAnswer, key_digest, noting_store
from weir.storage.interface import ObjectStore

__all__ = ["IdempotentWrites"]

_log = get_logger(__name__)
_MOST_WAITING = 256


class IdempotentWrites:
    """The answers of writes below a root.

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
        """Do a write, unless it was done already; return what it did.

        Parameters
        ----------
        namespace : Namespace
            What is written.
        write : Write
            The write.
        caller : str
            Id of the key of whoever asks.
        key, body
            Of the request.

        Raises
        ------
        Refusal
            400 if it is no key; 422 if another body came with it before.
        """
        name = key_digest(caller, key)
        path = f"idempotency/{directory_of(namespace.name)}/{name}.json"
        with self._one_at_a_time(path):
            kept = KeptAnswer(self._store if write.looks_before else self._quick, path, body)
            known = kept.read(lambda note: _is_of(note, namespace))
            if known is not None and known["done"]:
                return Written(**known["answer"])

            def is_known(table: str) -> bool:
                return known is not None and known.get("table", table) == table

            def decided(written: Written, changes: bool, table: str) -> None:
                # An attempt that failed may have found other documents.
                if not is_known(table) or write.looks_before:
                    kept.keep(done=not changes, answer=_told(written), table=table)

            source = Source(f"once:{kept.write_name(name)}", 1)
            written, is_repeated, table = namespace.write_once(write, source, decided)
            if known is not None and is_known(table) and (is_repeated or not write.looks_before):
                written = Written(**known["answer"])
            self._note_done(KeptAnswer(self._quick, path, body), written, table)
            return written

    def _note_done(self, kept: KeptAnswer, written: Written, table: str) -> None:
        def note() -> None:
            try:
                kept.keep(done=True, answer=_told(written), table=table)
            except WeirError as error:
                _log.warning("idempotency.not_noted", error=type(error).__name__)

        def note_in_turn() -> None:
            try:
                note()
            finally:
                self._waiting.release()

        if not self._waiting.acquire(blocking=False):
            note()
            return
        try:
            self._noting.submit(note_in_turn)
        except RuntimeError:  # it was closed meanwhile
            note_in_turn()

    @contextmanager
    def _one_at_a_time(self, path: str) -> Iterator[None]:
        """Keep requests of one key apart: whoever waits finds what the other has done."""
        with self._ended:
            while path in self._under_way:
                self._ended.wait()
            self._under_way.add(path)
        try:
            yield
        finally:
            with self._ended:
                self._under_way.discard(path)
                self._ended.notify_all()

    def close(self) -> None:
        """Note what is left to be noted."""
        self._noting.shutdown(wait=True)


def _is_of(note: Mapping[str, Any], namespace: Namespace) -> bool:
    """Whether what is kept is of the table that the namespace has now; of before there were names, it is."""
    if "table" not in note:
        return True
    opened = namespace.find()
    return opened is not None and opened.definition.table == note["table"]


def _told(written: Written) -> dict[str, object]:
    return {name: getattr(written, name) for name in Written.__dataclass_fields__}
