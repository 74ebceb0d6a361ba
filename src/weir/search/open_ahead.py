"""Prefetching the first data file of a base table on an object store while its shards are checked.

The files of an answer's rows are known before the rows are. The library keeps what it has read of the end of
a file and of the heads of its columns, so the search finds it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import lance

from weir.base.library_errors import LIBRARY_ERRORS, is_panic
from weir.base.table import BaseTable
from weir.schema.vectors import is_vector

__all__ = ["open_ahead"]


def open_ahead(base: BaseTable, columns: Sequence[str] | None) -> None:
    """Begin to open the first data file of a base table on an object store. Nothing waits for it.

    An error is not one here: the search will meet it, and say more.

    Parameters
    ----------
    base : BaseTable
        The base table, as it was when it was opened or last read.
    columns : sequence of str or None
        Columns of the result; None for all.
    """
    if base.store.is_local:
        return
    stored = base.dataset.schema
    asked = stored.names if columns is None else columns
    narrow = [name for name in asked if name in stored.names and not is_vector(stored.field(name).type)]
    # A process that is ending can no longer start threads.
    with suppress(RuntimeError):
        base.engine.executors.requests.submit(partial(_read_first_row, base.dataset, narrow))


def _read_first_row(dataset: lance.LanceDataset, columns: Sequence[str]) -> None:
    try:
        if columns and dataset.count_rows() > 0:
            dataset.take([0], columns=[*columns])
    except BaseException as error:
        if not isinstance(error, LIBRARY_ERRORS) and not is_panic(error):
            raise
