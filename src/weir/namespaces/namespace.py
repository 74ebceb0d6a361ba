"""One namespace: its documents, attributes and operations."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

import weir
from weir.errors import (
    ConflictError,
    CorruptionError,
    FencedError,
    InputError,
    LeaseHeldError,
    NamespaceNotFoundError,
    NamespaceReadOnlyError,
    StorageError,
    TableNotFoundError,
    WeirError,
)
from weir.log.read_lease import read_lease
from weir.namespaces.answers import answers_of, documents_with
from weir.namespaces.attributes import Kind, Metric
from weir.namespaces.catalog import Catalog, Known
from weir.namespaces.columns import add_columns, drop_columns, held_by, left_over
from weir.namespaces.decision import Prepared, decide_unseen, prepare
from weir.namespaces.declarations import extended, first_definition
from weir.namespaces.definition import Definition
from weir.namespaces.dirty import Dirty
from weir.namespaces.filter.expression import Filter
from weir.namespaces.indexes import replace_text_index, same_text_index
from weir.namespaces.locks import SharedLock
from weir.namespaces.names import ID, directory_of
from weir.namespaces.opened import Opened
from weir.namespaces.query import Answer, Limit, Query, State
from weir.namespaces.ranking import Nearest, Ranking
from weir.namespaces.reading import Reading
from weir.namespaces.recall import Recall, measure_recall
from weir.namespaces.row_changes import apply_changes, apply_conditional, apply_each, apply_once, decision_on
from weir.namespaces.tables import Tables
from weir.namespaces.upkeep import keep_up, recover
from weir.namespaces.write import Declaration, MarkedWrite, Write, Written, WrittenOnce
from weir.namespaces.write_groups import groups_of, one_write, written_by_each
from weir.write.lease.lease_owner import new_lease_owner

__all__ = ["Namespace", "Opened", "holder_of"]

_ATTEMPTS = 64
_NEW = "new"
"""A table with a column of this name cannot decide by conditions on the row to be written."""

_Result = TypeVar("_Result")
_Held = TypeVar("_Held", bound="Opened | None")


def holder_of(name: str) -> str:
    """Return the id under which a process holds leases that holds them under a name."""
    return new_lease_owner(name).holder_id


class Namespace:
    """A namespace, whether or not there is one of that name yet. Safe to use from many threads.

    Made by :meth:`weir.namespaces.Namespaces.namespace`.

    Parameters
    ----------
    name : str
        Its name.
    catalog : Catalog
        The definitions.
    tables : Tables
        Opens its tables.
    dirty : Dirty
        Says which namespaces have to be looked after.
    open_here : set of Namespace
        Those that have a table open; this one is among them for as long as it has.
    """

    def __init__(
        self, name: str, catalog: Catalog, tables: Tables, dirty: Dirty, open_here: set[Namespace]
    ) -> None:
        self.name = name
        self._directory = directory_of(name)
        self._catalog = catalog
        self._tables = tables
        self._dirty = dirty
        self._lock = SharedLock()
        self._changing = threading.RLock()
        self._opened: Opened | None = None
        self._open_here = open_here

    def _hold(self, opened: _Held) -> _Held:
        """Have a table open, or none; for as long as there is one, the process knows of the namespace."""
        self._opened = opened
        (self._open_here.discard if opened is None else self._open_here.add)(self)
        return opened

    # ---- what is there ---------------------------------------------------------------------------------

    def opened(self) -> Opened:
        """Return the namespace's table, as it is now.

        Raises
        ------
        NamespaceNotFoundError
            If there is no namespace of this name.
        """
        found = self.find()
        if found is None:
            raise NamespaceNotFoundError(f"there is no namespace {self.name!r}")
        return found

    def find(self) -> Opened | None:
        """Return the namespace's table; None if there is no namespace of this name."""
        opened = self._opened
        if opened is not None and self._catalog.version(self.name) == opened.known.version:
            opened.used_at = time.monotonic()
            return opened
        if not self._changing.acquire(blocking=False):
            # Creating the namespace may take long, as for a copy: until then it does not exist.
            if opened is None and self._known().definition is None:
                return None
            self._changing.acquire()
        try:
            return self._renewed()
        finally:
            self._changing.release()

    def _known(self) -> Known:
        """Return the definition, or a missing one.

        Raises
        ------
        CorruptionError
            If it is missing although there are tables that it should name.
        """
        for _ in range(_ATTEMPTS):
            known = self._catalog.read(self.name)
            if known.definition is not None or not self._tables.has_lost(self._directory):
                return known
            # Another process may have created the namespace since.
            if self._catalog.version(self.name) == known.version:
                raise self._catalog.lost(self.name)
        raise ConflictError("the namespace keeps changing", where=self.name)

    def _renewed(self) -> Opened | None:
        known = self._known()
        before = self._opened
        if known.definition is None:
            self._hold(None)
        elif before is not None and before.definition.table == known.definition.table:
            before.definition, before.known = known.definition, known
            return before
        else:
            self._hold(self._opened_as(known, self._table_of(known, known.definition)))
        if before is not None and before is not self._opened:
            before.forget_writer()
        return self._opened

    def _table_of(self, known: Known, definition: Definition) -> weir.Table:
        try:
            return self._tables.open(self._directory, definition)
        except TableNotFoundError as error:
            if self._catalog.version(self.name) != known.version:
                raise  # another process has deleted the namespace meanwhile
            raise CorruptionError(
                f"the table of the namespace {self.name!r} is gone",
                where=error.where,
                hint="Restore it from a backup, with what is below catalog; or remove the definition below "
                "catalog, which abandons the namespace",
            ) from error

    def _opened_as(self, known: Known, table: weir.Table) -> Opened:
        return Opened(known, table, self._tables.writer_options, lambda: self._dirty.mark(self.name))

    def _replace(self, definition: Definition | None, known: Known) -> Known:
        return self._catalog.replace(self.name, definition, known)

    @property
    def definition(self) -> Definition:
        """What the namespace is.

        Raises
        ------
        NamespaceNotFoundError
            If it does not exist.
        """
        return self.opened().definition

    # ---- writing ---------------------------------------------------------------------------------------

    def write(self, write: Write) -> Written:
        """Write documents: all at one moment, or nothing.

        Raises
        ------
        InputError
            If something does not fit. Nothing was written.
        NamespaceNotFoundError
            If there is no namespace, and the write makes none.
        NamespaceReadOnlyError
            If the namespace is read-only.
        LeaseHeldError
            If another process writes the namespace.
        BackpressureError
            If it cannot keep up.
        """

        def done(opened: Opened, is_new: bool) -> Written:
            written = self._written(write, opened)
            return replace(written, created=True) if is_new else written

        return self._on_table(write, done)

    def _written(self, write: Write, opened: Opened) -> Written:
        if write.is_decided_by_key and _NEW not in opened.definition.schema.names:
            with self._lock.shared():
                opened, prepared = self._prepared(write, opened)
                done = apply_conditional(opened, prepared)
                return written_by_each([write], prepared, done)[0]
        if write.looks_before:
            with self._lock.alone():
                opened, prepared = self._prepared_alone(write, opened)
                decided = decision_on(opened, prepared)
                apply_changes(opened, decided.changes)
                return decided.written
        with self._lock.shared():
            opened, prepared = self._prepared(write, opened)
            decided = decide_unseen(prepared)
            apply_changes(opened, decided.changes)
            return decided.written

    def write_many(self, writes: Sequence[Write]) -> list[Written | WeirError]:
        """Do several writes, in their order, each as :meth:`write` does it; neighbours share a log entry.

        For many small writes that come at once, which then cost little more than one.

        Returns
        -------
        list of Written or WeirError
            What each has done, or why nothing of it was.
        """
        outcomes: list[Written | WeirError] = []
        for group in groups_of(writes):
            alone = [partial(self.write, write) for write in group]
            outcomes += self._done_together(group, alone, partial(self._as_one, group))
        return outcomes

    def _done_together(
        self,
        group: Sequence[Write],
        alone: Sequence[Callable[[], _Result]],
        together: Callable[[Write, Opened], Sequence[_Result | WeirError]],
    ) -> Sequence[_Result | WeirError]:
        """Do the writes of a group as one write, or each alone where they are not to be one."""
        if len(group) == 1 or self.find() is None:
            return [_outcome(one) for one in alone]
        whole = one_write(group)
        try:
            return self._on_table(whole, lambda opened, _: together(whole, opened))
        except (InputError, ConflictError, NamespaceNotFoundError):
            # Nothing is written; one by one it is found out whose fault it is.
            return [_outcome(one) for one in alone]
        except WeirError as error:
            return [error] * len(group)

    def _as_one(self, group: Sequence[Write], whole: Write, opened: Opened) -> list[Written]:
        with self._lock.shared():
            opened, prepared = self._prepared_as_one(whole, opened)
            done = None
            if whole.is_decided_by_key:
                done = apply_conditional(opened, prepared)
            else:
                apply_changes(opened, decide_unseen(prepared).changes)
        return written_by_each(group, prepared, done)

    def _prepared_as_one(self, whole: Write, opened: Opened) -> tuple[Opened, Prepared]:
        names = [] if whole.upserts is None else whole.upserts.values
        if any(name not in opened.definition.attributes for name in names) or (
            whole.is_decided_by_key and _NEW in opened.definition.schema.names
        ):
            raise ConflictError("each of the writes decides what the next one finds", where=self.name)
        return self._prepared(whole, opened)

    def write_once(self, marked: MarkedWrite) -> WrittenOnce:
        """Do a write, unless one with the same mark was done.

        Raises
        ------
        WeirError
            As :meth:`write`.
        """
        return self._on_table(marked.write, lambda opened, is_new: self._written_once(marked, opened, is_new))

    def write_many_once(self, writes: Sequence[MarkedWrite]) -> list[WrittenOnce | WeirError]:
        """Do several writes in their order, each as :meth:`write_once` does it; neighbours share a log entry.

        Returns
        -------
        list of WrittenOnce or WeirError
            What came of each.
        """
        outcomes: list[WrittenOnce | WeirError] = []
        for group in groups_of([one.write for one in writes]):
            begin = len(outcomes)
            marked = writes[begin : begin + len(group)]
            alone = [partial(self.write_once, one) for one in marked]
            if marked[0].write.looks_before:
                # The effect of each must be known before it is made.
                outcomes += [_outcome(one) for one in alone]
            else:
                outcomes += self._done_together(group, alone, partial(self._once_as_one, marked))
        return outcomes

    def _once_as_one(
        self, marked: Sequence[MarkedWrite], whole: Write, opened: Opened
    ) -> list[WrittenOnce | WeirError]:
        with self._lock.shared():
            opened, prepared = self._prepared_as_one(whole, opened)
            writes = [one.write for one in marked]
            (changes,) = decide_unseen(prepared).changes
            sources = [(one.named_documents, each.source) for one, each in zip(writes, marked, strict=True)]
            firsts = apply_each(opened, changes, sources)
        return [
            first if isinstance(first, WeirError) else WrittenOnce(written, first, opened.definition.table)
            for first, written in zip(firsts, written_by_each(writes, prepared, None), strict=True)
        ]

    def _written_once(self, marked: MarkedWrite, opened: Opened, is_new: bool) -> WrittenOnce:
        write, source = marked.write, marked.source
        if not write.looks_before:
            with self._lock.shared():
                opened, prepared = self._prepared(write, opened)
                found = decide_unseen(prepared)
                written = replace(found.written, created=is_new)
                table = opened.definition.table
                if is_new or not found.changes:
                    marked.decided(written, bool(found.changes), table)
                return WrittenOnce(written, apply_once(opened, found.changes, source), table)
        with self._lock.alone():
            opened, prepared = self._prepared_alone(write, opened)
            found = decision_on(opened, prepared)
            written = replace(found.written, created=is_new)
            table = opened.definition.table
            first = opened.writer().single_write(None, source.name)
            if first is None:
                marked.decided(written, bool(found.changes), table)
                first = apply_once(opened, found.changes, source)
            return WrittenOnce(written, first, table)

    def _on_table(self, write: Write, work: Callable[[Opened, bool], _Result]) -> _Result:
        """Do a write to the namespace's table, or to a new one if it is deleted meanwhile."""
        for _ in range(_ATTEMPTS):
            opened, is_new = self._for_write(write)
            with suppress(NamespaceNotFoundError, TableNotFoundError):
                return work(opened, is_new)
        raise ConflictError("the namespace keeps being deleted", where=self.name)

    def _for_write(self, write: Write) -> tuple[Opened, bool]:
        """Return the table that is written, and whether the write has made the namespace."""
        opened = self.find()
        if opened is None:
            brings = write.upserts is not None and len(write.upserts) > 0
            if write.create is False or not (write.create or brings):
                raise NamespaceNotFoundError(f"there is no namespace {self.name!r}")
            return self._create(write)
        self._refuse_read_only(opened)
        return opened, False

    def _refuse_read_only(self, opened: Opened) -> None:
        if opened.definition.read_only:
            raise NamespaceReadOnlyError(f"the namespace {self.name!r} is read-only")

    def _create(self, write: Write) -> tuple[Opened, bool]:
        definition = first_definition(write, self._tables.max_attributes)
        prepare(write, definition)
        opened = self.create(definition)
        return opened, opened.definition.table == definition.table

    def create(self, definition: Definition) -> Opened:
        """Create the namespace, unless another process does at this moment."""
        with self._changing:
            known = self._known()
            if known.definition is not None:
                return self.opened()
            self._dirty.mark(self.name)  # if this process dies now, others find what it leaves
            self._tables.note_unnamed(self._directory, definition.table)
            table = self._tables.create(self._directory, definition)
            return self._published(definition, known, table)

    def _published(self, definition: Definition, known: Known, table: weir.Table) -> Opened:
        try:
            made = self._replace(definition, known)
        except ConflictError:
            with suppress(WeirError):
                self._tables.drop(self._directory, definition.table)
                self._tables.forget_unnamed(self._directory, definition.table)
            found = self.find()
            if found is None:
                raise ConflictError(
                    "the namespace was deleted while it was being created", where=self.name, hint="Try again"
                ) from None
            return found
        self._tables.forget_unnamed(self._directory, definition.table)
        return self._hold(self._opened_as(made, table))

    def _prepared(self, write: Write, opened: Opened) -> tuple[Opened, Prepared]:
        """Return a checked write, once the namespace has every attribute that it brings."""
        if self._opened is not opened:
            opened = self.opened()  # it was idle for long, and was released
        for _ in range(_ATTEMPTS):
            before = opened.definition
            self._refuse_read_only(opened)
            definition = extended(before, write, self._tables.max_attributes)
            prepared = prepare(write, definition)
            if definition is before:
                return opened, prepared
            try:
                opened = self.change(opened, before, definition)
            except ConflictError:
                opened = self.opened()
        raise ConflictError("the attributes of the namespace keep changing", where=self.name)

    def _prepared_alone(self, write: Write, opened: Opened) -> tuple[Opened, Prepared]:
        """Return a checked write once no other process writes to the namespace.

        Until the write is done, what it finds stays true: of the documents, and of their attributes.
        """
        for _ in range(_ATTEMPTS):
            opened, prepared = self._prepared(write, opened)
            if not opened.claim():
                return opened, prepared
            # Who wrote before may have added attributes a moment ago.
            found = self.opened()
            if found is opened and found.definition is prepared.definition:
                return opened, prepared
            opened = found
        raise ConflictError("the namespace keeps changing", where=self.name)

    def change(self, opened: Opened, before: Definition, definition: Definition) -> Opened:
        """Give the namespace another definition: its table gets the columns and indexes first.

        Parameters
        ----------
        opened : Opened
            The table.
        before : Definition
            The definition that the other one was made of.
        definition : Definition
            The other one.

        Raises
        ------
        ConflictError
            If another thread or process has changed the definition. Changes to the table are harmless.
        """
        with self._changing:
            if self._opened is not opened or opened.definition is not before:
                raise ConflictError("another writer has changed the namespace", where=self.name)
            table = opened.table
            added = [one for name, one in definition.attributes.items() if name not in before.attributes]
            dropped = [one for name, one in before.attributes.items() if name not in definition.attributes]
            self._check_version(opened)
            if added:
                table.internals.follow()  # another process may have dropped columns of these names
            left = left_over(table, added)
            if left:
                # Only the exclusive writer of the table may remove values unnoticed.
                opened.claim()
                self._check_version(opened)
                drop_columns(table, left)
            add_columns(table, added)
            for attribute in definition.attributes.values():
                known = before.attributes.get(attribute.name)
                if known is None or not same_text_index(known, attribute):
                    replace_text_index(table, attribute, known)
            made = self._replace(definition, opened.known)
            opened.definition, opened.known = definition, made
            if dropped:
                # Nobody knows of them any more. Should this be interrupted, they go when the name is used, as
                # they do if the definition has changed since: another process may use the names again.
                with suppress(ConflictError):
                    self._check_version(opened)
                    drop_columns(table, [one.column for one in dropped])
            return opened

    def _check_version(self, opened: Opened) -> None:
        if self._catalog.version(self.name) != opened.known.version:
            raise ConflictError("another writer has changed the namespace", where=self.name)

    # ---- who writes ------------------------------------------------------------------------------------

    @property
    def last_opened(self) -> Opened | None:
        """The namespace's table as it was when this process last looked; None if it is not open here."""
        return self._opened

    @property
    def is_open(self) -> bool:
        """Whether this process has its table open."""
        return self._opened is not None

    @property
    def is_writing(self) -> bool:
        """Whether this process writes the namespace."""
        opened = self._opened
        return opened is not None and opened.is_writing

    @property
    def lag(self) -> float:
        """For how many seconds the oldest write of this process waits to be merged; 0 if none does."""
        opened = self._opened
        since = None if opened is None else opened.dirty_since
        return 0.0 if since is None else time.monotonic() - since

    def lease_holder(self) -> str | None:
        """Return the id of the lease holder of the namespace; None if there is none.

        Of a process that serves under a name (``holder`` of its writers) it is :func:`holder_of` that name.
        """
        opened = self.find()
        if opened is None:
            return None
        for shard in opened.table.status().shards:
            if shard.lease == "held":
                lease = read_lease(opened.table.internals.store, shard.shard_id)
                return None if lease is None else lease.holder.holder_id
        return None

    # ---- upkeep ----------------------------------------------------------------------------------------

    def maintain(self) -> bool:
        """Flush and merge what this process has written, keep the indexes up; return whether there was any.

        Raises
        ------
        WeirError
            If a part of it failed. The next call continues.
        """
        opened = self._opened
        if opened is None or not opened.is_dirty:
            return False
        return keep_up(opened, partial(self._is_gone, opened))

    def compact(self) -> None:
        """Do at once what :meth:`maintain` does when it is due."""
        with suppress(WeirError):
            opened = self.opened()
            keep_up(opened, partial(self._is_gone, opened))

    def _is_gone(self, opened: Opened) -> bool:
        """Whether the namespace of this table was deleted."""
        with suppress(WeirError):
            present = self._known().definition
            return present is None or present.table != opened.definition.table
        return False

    def flush(self) -> None:
        """Flush what this process has written, so that it can be merged."""
        if self._opened is not None:
            self._opened.flush()

    def look_after_abandoned(self) -> bool:
        """Recover and merge what a process that is gone has left; return whether there was anything.

        Raises
        ------
        LeaseHeldError
            If the namespace is being written, or was a moment ago: nothing can be done yet.
        WeirError
            If a part of it failed. The next call continues.
        """
        opened = self.find()
        if opened is None or opened.is_writing:
            return False
        return recover(opened, self.name)

    def collect(self, horizon: timedelta) -> bool:
        """Remove what merges have replaced, and has been marked for so long; return whether that was all."""
        removed = self.remove_leftovers()
        opened = self.find()
        if opened is None:
            return not removed
        if opened.is_dirty or removed:
            return False
        report = opened.table.maintenance.collect_garbage(horizon=horizon, version_retention=horizon)
        return not report.waiting_objects and not report.deleted_objects

    def remove_leftovers(self) -> int:
        """Remove tables that processes left which died while they made or deleted it, or noticed too late.

        Returns
        -------
        int
            How many tables. A concurrent creation of the namespace may have to start over.
        """
        # In this order: a table that is named loses its note after that.
        unnamed = self._tables.unnamed(self._directory)
        tables = self._tables.names(self._directory)
        with self._changing:
            known = self._known()
            kept = None if known.definition is None else known.definition.table
            left = [table for table in tables if table != kept and table in unnamed]
            if left and kept is None:
                # A process about to name one of them has read this version, and would have to replace it.
                self._replace(None, known)
            for table in left:
                self._tables.remove(self._directory, table)
            if unnamed:
                self._tables.forget_old(self._directory, kept)
        return len(left)

    def rest(self, unused: float) -> bool:
        """Release the table if it was idle for this many seconds, and everything is merged.

        An unwritten namespace then has no owner: its lease is released, and the next writer becomes the
        owner.
        """
        opened = self._opened
        if opened is None or not opened.is_unused(unused):
            return False
        with self._lock.alone(), self._changing:
            if self._opened is not opened or not opened.is_unused(unused):
                return False
            self._hold(None)
            with suppress(WeirError):
                opened.close()  # else its lease runs out
            return True

    # ---- reading ---------------------------------------------------------------------------------------

    def query(self, query: Query, state: State | None = None) -> Answer:
        """Return the documents that a query ranks best, or numbers about documents.

        Raises
        ------
        InputError
            If it cannot be asked of the namespace.
        NamespaceNotFoundError
            If it does not exist.
        """
        return self.queries([query], state)[0]

    def queries(
        self, queries: Sequence[Query], state: State | None = None, most_bytes: int | None = None
    ) -> list[Answer]:
        """Return the answers of several queries, all on one state of the namespace.

        Parameters
        ----------
        queries : sequence of Query
            The queries.
        state : State, optional
            Which state they see. Default: the newest.
        most_bytes : int, optional
            Bytes of the documents of all answers together. Default: any number.

        Raises
        ------
        InputError
            If a query cannot be asked of the namespace, or the answers have more bytes.
        NamespaceNotFoundError
            If it does not exist.
        """
        return self._read(lambda opened: answers_of(opened, queries, state or State(), most_bytes))

    def get(
        self, ids: Sequence[Any], attributes: Sequence[str] | None = None, state: State | None = None
    ) -> pa.Table:
        """Return the documents with some ids, in order, without missing ones.

        Parameters
        ----------
        ids : sequence
            The ids.
        attributes : sequence of str, optional
            What to return of them beside the id. Default: all.
        state : State, optional
            Which state is read. Default: the newest.

        Raises
        ------
        InputError
            If an id is of another kind than those of the namespace.
        """
        return self._read(lambda opened: documents_with(opened, ids, attributes, state or State()))

    def count(self) -> int:
        """Return how many documents there are."""
        return self._read(lambda opened: int(opened.table.scan([ID]).count()))

    def token(self, retain: timedelta | None = None) -> str:
        """Return a token of the namespace's current state, for reading it again.

        Parameters
        ----------
        retain : timedelta, optional
            How long to keep what it needs. Default: until it is collected.
        """
        opened = self.opened()
        return opened.token() if retain is None else str(opened.table.snapshot(retain=retain))

    def release(self, token: str) -> None:
        """Keep nothing for a token any more."""
        self.opened().table.release(token)

    def explain(self, query: Query) -> str:
        """Return an explanation of a query as text; it names the namespace, not its location."""

        def explained(opened: Opened) -> str:
            told = Reading(opened.table, opened.definition, State()).explain(query)
            return told.replace(opened.table.uri, self.name)

        return self._read(explained)

    def recall(
        self,
        *,
        searches: int = 25,
        top_k: int = 10,
        filter: Filter | None = None,
        ranking: Ranking | None = None,
    ) -> Recall:
        """Return how many of the nearest documents searches by the index find.

        Parameters
        ----------
        searches : int
            For how many vectors of the namespace. Default 25.
        top_k : int
            Documents of each. Default 10.
        filter : Filter, optional
            Which documents count.
        ranking : Ranking, optional
            By the distance of this vector, instead of those of the namespace.
        """

        def measured(opened: Opened) -> Recall:
            reading = Reading(opened.table, opened.definition, State())
            return measure_recall(
                reading, opened.definition, searches=searches, top_k=top_k, filter=filter, ranking=ranking
            )

        return self._read(measured)

    def warm(self) -> None:
        """Read what the next query will need: the ends of the logs, keys, and the vector indexes."""
        opened = self.opened()
        opened.table.scan([ID], limit=1).to_table()
        for attribute in opened.definition.vectors:
            assert attribute.type.dimensions is not None
            vector = np.ones(attribute.type.dimensions, dtype=np.float32)
            self.query(Query(rank_by=Nearest(attribute.name, vector), limit=Limit(1)))

    def _read(self, read: Callable[[Opened], _Result]) -> _Result:
        opened = self.opened()
        try:
            return read(opened)
        except TableNotFoundError:
            # Deleted meanwhile, and perhaps created again.
            return read(self.opened())

    # ---- the whole -------------------------------------------------------------------------------------

    def delete(self) -> None:
        """Remove the namespace. Its name is free when the call returns.

        Raises
        ------
        NamespaceNotFoundError
            If it does not exist.
        NamespaceReadOnlyError
            If it is read-only.
        """
        for _ in range(_ATTEMPTS):
            with self._lock.alone(), self._changing:
                opened = self.opened()
                self._refuse_read_only(opened)
                self._dirty.mark(self.name)  # its table is removed later, if not here
                table = opened.definition.table
                self._tables.note_unnamed(self._directory, table)
                try:
                    self._replace(None, opened.known)
                except ConflictError:
                    self._hold(None)
                    opened.forget_writer()
                    continue
                self._hold(None)
                opened.forget_writer()
            # Upkeep removes the files of one whose writer may not have noticed, once its lease has run out.
            # The note of the table stays: another process may be in the middle of a merge, and write files.
            with suppress(TableNotFoundError, LeaseHeldError):
                self._tables.drop(self._directory, table)
            with suppress(StorageError):
                self._tables.forget_old(self._directory, None)
            return
        raise ConflictError("the namespace keeps changing", where=self.name)

    def copy_from(self, source: Namespace, at: str | None = None) -> int:
        """Make the namespace a copy of another one, as it is now or at a token; return how many documents.

        Raises
        ------
        InputError
            If there is a namespace of this name.
        """
        opened = source.opened()
        with self._changing:
            known = self._known()
            if known.definition is not None:
                raise InputError(f"there is already a namespace {self.name!r}, and a copy creates a new one")
            definition = replace(
                opened.definition,
                table=Definition.new(Kind.UINT, Metric.COSINE).table,
                created_at=datetime.now(UTC),
                read_only=False,
            )
            self._dirty.mark(self.name)
            self._tables.note_unnamed(self._directory, definition.table)
            token = at or opened.table.snapshot(retain=timedelta(hours=1))
            try:
                table = self._tables.clone(opened.table, token, self._directory, definition)
            finally:
                if at is None:
                    opened.table.release(token)
            if at is not None:
                definition = held_by(definition, table)
            made = self._published(definition, known, table)
        if made.definition.table != definition.table:
            raise InputError(f"there is already a namespace {self.name!r}, and a copy creates a new one")
        return self.count()

    def set_read_only(self, read_only: bool) -> None:
        """Refuse writes from now on, or take them again; wait until those of this process have ended.

        A write of another process that has begun may still be done.
        """
        with self._lock.alone():
            self.redefine(lambda definition: replace(definition, read_only=read_only))

    def redefine(self, changed: Callable[[Definition], Definition]) -> Definition:
        """Give the namespace another definition, made of the one it has; return it."""
        for _ in range(_ATTEMPTS):
            opened = self.opened()
            before = opened.definition
            definition = changed(before)
            with suppress(ConflictError):
                self.change(opened, before, definition)
                return definition
        raise ConflictError("the namespace keeps changing", where=self.name)

    def declare(self, declarations: Mapping[str, Declaration]) -> Definition:
        """Add attributes, change how they are searched, or drop them; return the definition."""
        write = Write(declarations=declarations)
        with self._lock.alone():
            return self._prepared(write, self.opened())[0].definition

    def close(self) -> None:
        """Let go of what this process has open."""
        with self._lock.alone(), self._changing:
            opened = self._opened
            self._hold(None)
            if opened is not None:
                try:
                    opened.close()
                except FencedError:
                    pass  # another process writes it now, and has what was written here
                except WeirError:
                    if not self._is_gone(opened):
                        raise


def _outcome(work: Callable[[], _Result]) -> _Result | WeirError:
    try:
        return work()
    except WeirError as error:
        return error
