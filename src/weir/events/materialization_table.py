"""The table of a materialisation: its rows, and the mark of how far they go.

Rows and mark are one write to one shard, so they change together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import LeaseHeldError, TableExistsError, TableNotFoundError, WriterError
from weir.events.cursors import Cursor
from weir.read.read_end import ReadEnd
from weir.storage.interface import ObjectStore
from weir.table.lifecycle import create, drop, open
from weir.table.table import Table

__all__ = ["PLACE", "Kept", "Mark", "MaterializationTable", "drop_table", "stored_tables"]

PLACE = "materializations"
"""Where the tables are, below the event store."""
_MARK = "mark"
_LOGGED = 16
"""Number of refreshes after which their log entries are flushed."""
_MOST_BYTES = 32 * 1024 * 1024
"""How much of the stored rows a process keeps in memory."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How far the rows go, and how they were stored."""

    cursor: Cursor
    erasures: int
    floor: int | None
    at: int
    write_id: str
    refreshes: int = 1
    events: int = 0
    micros: int = 0

    def encode(self) -> str:
        """Return it as stored."""
        return json.dumps(
            {
                "seen": self.cursor.to_json(),
                "erasures": self.erasures,
                "floor": self.floor,
                "at": self.at,
                "write_id": self.write_id,
                "refreshes": self.refreshes,
                "events": self.events,
                "micros": self.micros,
            }
        )

    @classmethod
    def decode(cls, text: str) -> Mark:
        """Return what is stored."""
        stored = json.loads(text)
        return cls(
            Cursor.from_json(stored["seen"]),
            stored["erasures"],
            stored["floor"],
            stored["at"],
            stored["write_id"],
            stored["refreshes"],
            stored["events"],
            stored["micros"],
        )


@dataclass(frozen=True, slots=True)
class Kept:
    """The stored state: rows, and how far they go.

    Parameters
    ----------
    rows : Table
        The rows.
    mark : Mark or None
        How far they go; None if nothing is stored.
    end : ReadEnd, optional
        How far the read of the events came that they follow from, if this process has made it.
    """

    rows: pa.Table
    mark: Mark | None
    end: ReadEnd | None = None


class MaterializationTable:
    """The table of one materialisation, whether or not there is one yet.

    Parameters
    ----------
    uri : str
        Its location.
    schema : Schema
        Its columns, without that of the mark.
    key : str
        The column of its key.
    options : mapping
        Options for creating and opening it.
    last_kept : dict
        The states that this process has last seen stored, or is storing, by location; each is read again once
        it was rewritten. Each with the history of the events that it follows from.
    history : str
        The history of the events that is followed: a state of another one does not count.
    """

    def __init__(
        self,
        uri: str,
        schema: pa.Schema,
        key: str,
        options: Mapping[str, Any],
        last_kept: dict[str, tuple[str, Kept]],
        history: str,
    ) -> None:
        self.uri = uri
        self.history = history
        self._schema = schema.append(pa.field(_MARK, pa.string()))
        self._key = key
        self._key_of_mark: str | int = "" if key == "key" else 0
        self._options = options
        self._last_kept = last_kept

    def open(self) -> Table | None:
        """Return the table, if there is one."""
        try:
            return open(self.uri, maintenance="off", **self._options)
        except TableNotFoundError:
            return None

    def _made(self) -> Table:
        with suppress(TableExistsError):
            return create(self.uri, self._schema, primary_key=self._key, maintenance="off", **self._options)
        return open(self.uri, maintenance="off", **self._options)

    def mark(self) -> Mark | None:
        """Return how far the stored rows go, if there are any."""
        table = self.open()
        return None if table is None else self._mark_of(table)

    def last(self) -> Kept | None:
        """Return the state that this process has last seen or is storing, if it is kept."""
        history, kept = self._last_kept.get(self.uri, ("", None))
        return kept if history == self.history else None

    def read(self) -> Kept:
        """Return the state that is stored."""
        return self._state_of(self.open())

    def save(
        self, before: Mark | None, mark: Mark, rows: pa.Table, dropped: pa.Array | None, *, anew: bool
    ) -> bool:
        """Store rows and mark in one write, unless another process has stored or is about to."""
        table = self.open()
        if table is None:
            table = self._made()
        options = {
            "max_unmerged_generations": 100_000,
            # A little lies in the log until there is more of it, so that an answer need not wait.
            "flush_on_close": anew or mark.refreshes % _LOGGED == 0,
        }
        with suppress(LeaseHeldError, WriterError), table.writer(**options) as writer:
            writer.claim()
            if self._mark_of(table) != before:
                return False
            key = self._key
            gone = pa.array([], self._schema.field(key).type) if dropped is None else dropped
            if anew:
                gone = self._state_of(table).rows.column(key).combine_chunks()
                gone = gone.filter(pc.invert(pc.is_in(gone, rows.column(key).combine_chunks())))
            elif len(gone):
                rows = rows.filter(pc.invert(pc.is_in(rows.column(key), gone)))
            names = self._schema.names
            marked = pa.Table.from_pylist([{key: self._key_of_mark, _MARK: mark.encode()}], self._schema)
            upserts = pa.concat_tables([rows.append_column(_MARK, pa.nulls(len(rows), pa.string())), marked])
            deletes = pa.table(
                [
                    gone if name == key else pa.nulls(len(gone), self._schema.field(name).type)
                    for name in names
                ],
                names=names,
            )
            whole = pa.concat_tables([deletes, upserts.select(names).cast(deletes.schema)])
            ops = pa.array(["delete"] * len(gone) + ["upsert"] * len(upserts))
            writer.apply(whole.append_column("_op", ops))
            return True
        return False

    def keep(self, kept: Kept) -> Kept:
        """Keep a state in memory, if it is not too large; return it."""
        self.let_go()
        if kept.rows.nbytes <= _MOST_BYTES:
            self._last_kept[self.uri] = self.history, kept
        return kept

    def let_go(self) -> None:
        """Keep nothing in memory."""
        self._last_kept.pop(self.uri, None)

    def _state_of(self, table: Table | None) -> Kept:
        schema = self._schema
        mark = None if table is None else self._mark_of(table)
        if table is None or mark is None:
            return Kept(schema.empty_table().drop_columns([_MARK]), None)
        last = self.last()
        if last is not None and last.mark == mark:
            return last
        stored = table.scan(schema.names).to_table()
        of_mark = pc.is_valid(stored.column(_MARK))
        (text,) = stored.filter(of_mark).column(_MARK).to_pylist()
        return self.keep(Kept(stored.filter(pc.invert(of_mark)).drop_columns([_MARK]), Mark.decode(text)))

    def _mark_of(self, table: Table) -> Mark | None:
        found = table.get([self._key_of_mark], [_MARK]).column(_MARK).to_pylist()
        return Mark.decode(found[0]) if found else None


def stored_tables(store: ObjectStore, incarnation: str | None = None) -> list[str]:
    """Return the locations of all tables of materialisations, or of those of one.

    Former versions of a type, and a crash while dropping a materialisation, may leave tables behind.
    """
    found = store.list_directories(PLACE) if incarnation is None else [incarnation]
    return [f"{PLACE}/{one}/{name}" for one in found for name in store.list_directories(f"{PLACE}/{one}")]


def drop_table(store: ObjectStore, place: str, options: Mapping[str, Any]) -> None:
    """Remove a table of a materialisation, unless another process has."""
    with suppress(TableNotFoundError):
        drop(f"{store.uri}/{place}", takeover=True, **options)
