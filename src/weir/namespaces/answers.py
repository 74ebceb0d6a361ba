"""Answers on one state of a namespace: of several queries, or documents by their ids."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from weir.engine.cancellation import check_cancelled
from weir.errors import InputError, SnapshotExpiredError
from weir.namespaces.documents import id_column
from weir.namespaces.names import ID
from weir.namespaces.opened import Opened
from weir.namespaces.query import Answer, Query, State
from weir.namespaces.reading import Reading, one_read

__all__ = ["answers_of", "documents_with"]


def answers_of(
    opened: Opened, queries: Sequence[Query], state: State, most_bytes: int | None
) -> list[Answer]:
    """Return the answers of queries on one state, which have so many bytes at most.

    Raises
    ------
    InputError
        If a query cannot be asked of the namespace, or the answers have more bytes.
    """
    taken, token = time.monotonic(), state.token
    if token is None and state.max_staleness is not None:
        taken, token = opened.recent_token(state.max_staleness)
    elif token is None and not (len(queries) == 1 and one_read(queries[0])):
        token = opened.token()
    try:
        reading = Reading(opened.table, opened.definition, State(token=token))
        answers: list[Answer] = []
        for query in queries:
            check_cancelled()
            answers.append(reading.answer(query))
            _bound(answers, most_bytes)
    except SnapshotExpiredError:
        if state.token is not None:
            raise
        opened.recent = None
        return answers_of(opened, queries, State(), most_bytes)
    return [replace(one, token=token or reading.seen, taken=taken) for one in answers]


def documents_with(
    opened: Opened, ids: Sequence[Any], attributes: Sequence[str] | None, state: State
) -> pa.Table:
    """Return the documents with some ids, in order, without missing ones and unknown attributes."""
    definition = opened.definition
    names = [
        name
        for name in (definition.attributes if attributes is None else attributes)
        if name in definition.attributes
    ]
    keys = pa.table({ID: id_column(definition.id_kind, ids)})
    columns = [ID, *[definition.attributes[name].column for name in names]]
    rows = opened.table.get(keys, columns, **state.read_options)
    return rows.rename_columns([ID, *names])


def _bound(answers: Sequence[Answer], most_bytes: int | None) -> None:
    size = sum(0 if one.rows is None else one.rows.nbytes for one in answers)
    if most_bytes is not None and size > most_bytes:
        raise InputError(
            f"the documents of the answer have more than {most_bytes:,} bytes",
            hint="Ask for fewer of them, or for fewer of their attributes",
        )
