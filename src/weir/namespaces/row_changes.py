"""The row changes of writes, made in the table of a namespace."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

import weir
from weir import Source
from weir.errors import FilterError, InputError, TableNotFoundError, WeirError
from weir.namespaces.decision import Decided, Prepared, decide
from weir.namespaces.filter.expression import Filter
from weir.namespaces.filter.sql import NEW_ROW, Columns, condition_sql, filter_sql
from weir.namespaces.names import ID
from weir.namespaces.opened import Opened

__all__ = ["apply_changes", "apply_conditional", "apply_each", "apply_once", "decision_on"]


def apply_changes(opened: Opened, changes: Sequence[pa.Table]) -> None:
    """Write changes in one go."""
    if changes:
        with opened.writing() as writer:
            table = pa.concat_tables(changes, promote_options="default")
            writer.apply(table)
        opened.note_written(table.num_rows, table.nbytes)


def apply_once(opened: Opened, changes: Sequence[pa.Table], source: Source) -> int | None:
    """Write changes in one go; return the number of their mark if they were there already."""
    if not changes:
        return None
    table = pa.concat_tables(changes, promote_options="default")
    (first,) = apply_each(opened, table, [(table.num_rows, source)])
    if isinstance(first, WeirError):
        raise first
    return first


def apply_each(
    opened: Opened, changes: pa.Table, sources: Sequence[tuple[int, Source]]
) -> list[int | WeirError | None]:
    """Make writes with separate marks; return for each the number it was made with before, if it was."""
    firsts: list[int | WeirError | None] = []
    written = 0
    with opened.writing() as writer:
        for (rows, source), result in zip(sources, writer.apply_each(changes, sources), strict=True):
            if isinstance(result, TableNotFoundError):
                raise result  # all of it was for that table
            if isinstance(result, WeirError):
                firsts.append(result)
            elif result.deduplicated:
                firsts.append(writer.single_write(None, source.name))
            else:
                firsts.append(None)
                written += rows
    if written:
        opened.note_written(written, changes.nbytes * written // changes.num_rows)
    if any(isinstance(one, WeirError) and not isinstance(one, InputError) for one in firsts):
        opened.forget_writer()
    return firsts


def apply_conditional(opened: Opened, prepared: Prepared) -> pa.ChunkedArray:
    """Write documents that a condition decides on, in the log's order; return the ids of those."""
    rows, write, definition = prepared.upserts, prepared.write, prepared.definition
    if rows is None or write.upsert_condition is None:
        return pa.chunked_array([], definition.id_type.arrow)
    names = Columns(definition.type_of, new=NEW_ROW, is_filterable=definition.is_filterable)
    sql = condition_sql(write.upsert_condition, names)
    try:
        with opened.writing() as writer:
            result = writer.apply([weir.Upsert(rows, sql)])
    except FilterError as error:
        raise InputError("the condition cannot be evaluated: a pattern in it is not valid") from error
    assert result.done is not None
    done = rows.column(ID).filter(pc.is_in(rows.column(ID), value_set=result.done.column(ID)))
    if len(done):
        opened.note_written(len(done), rows.nbytes)
    return done


def decision_on(opened: Opened, prepared: Prepared) -> Decided:
    """Return what a write changes, given the documents that are there now."""
    table = opened.table
    columns = prepared.definition.schema

    def get(ids: pa.Array) -> pa.Table:
        return table.get(pa.table({ID: ids}), columns.names).cast(columns)

    def scan(filter: Filter, names: Sequence[str], most: int) -> pa.Table:
        definition = prepared.definition
        sql = filter_sql(filter, definition.type_of, definition.is_filterable)
        found = table.scan([*names], filter=sql, limit=most).to_table()
        return found.cast(pa.schema([columns.field(name) for name in names]))

    return decide(prepared, get, scan)
