"""Passing the merged keys from the tasks that settle rows to those that find replaced ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from lance.file import LanceFileReader, LanceFileWriter

from weir.base.dataset import library_options
from weir.base.library_errors import LIBRARY_ERRORS, storage_failure
from weir.format.key_order import key_order
from weir.format.wal_entry import TOMBSTONE
from weir.storage.interface import ObjectStore

__all__ = ["MergedKeys", "gathered_keys", "read_keys", "write_keys"]

_INLINE_BYTES = 64 * 1024
"""Up to which keys travel with the tasks: they pass through the machine that plans."""


@dataclass(frozen=True, slots=True)
class MergedKeys:
    """The keys of one run or of several. Can be pickled.

    Parameters
    ----------
    rows : int
        How many.
    deletes : int
        How many of them are deletes.
    inline : bytes or None
        The keys, if they are few: an Arrow IPC stream.
    path : str or None
        Otherwise their location: a Lance file among the data files, unreferenced by any version, so that at
        the latest the library's cleanup removes it.
    runs : int, default 1
        Number of writing tasks the keys come from, each of which has every key once.
    """

    rows: int
    deletes: int
    inline: bytes | None = None
    path: str | None = None
    runs: int = 1


def write_keys(store: ObjectStore, upserted: pa.Table, deletes: pa.Table) -> MergedKeys:
    """Pass keys on, sorted if they have one column: readers of many runs merge them.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    upserted : Table
        The key columns of the keys that have a row.
    deletes : Table
        Those of the keys that are deleted.
    """
    flags = [pa.repeat(pa.scalar(flag), part.num_rows) for flag, part in ((False, upserted), (True, deletes))]
    table = pa.concat_tables([upserted, deletes.cast(upserted.schema)])
    table = table.append_column(TOMBSTONE, pa.chunked_array(flags, pa.bool_())).combine_chunks()
    if table.num_columns == 2 and table.num_rows > 1:
        table = table.take(key_order(table.column(0).chunk(0)))
    return _written(store, table, runs=1)


def gathered_keys(store: ObjectStore, keys: Sequence[MergedKeys]) -> tuple[MergedKeys, ...]:
    """Put keys that travel with tasks together, so that those of many runs are no more than those of one.

    Every task gets all of them, and they all pass through the machine that plans.

    Parameters
    ----------
    store : ObjectStore
        The table's store. More than a few keys go into one file.
    keys : sequence of MergedKeys
        The keys of every run.
    """
    few = [one for one in keys if one.inline is not None]
    if sum(len(one.inline or b"") for one in few) <= _INLINE_BYTES:
        return tuple(keys)
    together = _written(store, read_keys(store, few), runs=sum(one.runs for one in few))
    return (*(one for one in keys if one.inline is None), together)


def _written(store: ObjectStore, table: pa.Table, *, runs: int) -> MergedKeys:
    table = table.combine_chunks()
    rows, deletes = table.num_rows, pc.sum(table.column(TOMBSTONE)).as_py() or 0
    if table.nbytes <= _INLINE_BYTES:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return MergedKeys(rows, deletes, inline=sink.getvalue().to_pybytes(), runs=runs)
    path = f"data/{uuid4().hex}.lance"
    where = f"{store.uri}/{path}"
    try:
        with LanceFileWriter(where, table.schema, storage_options=library_options(store)) as writer:
            for batch in table.to_batches():
                writer.write_batch(batch)
    except LIBRARY_ERRORS as error:
        raise storage_failure(error, "writing the keys of a merge", where=where) from error
    return MergedKeys(rows, deletes, path=path, runs=runs)


def read_keys(store: ObjectStore, keys: Sequence[MergedKeys]) -> pa.Table:
    """Return the keys of some runs, one after the other, with the column ``_tombstone``."""
    return pa.concat_tables([_read(store, one) for one in keys])


def _read(store: ObjectStore, keys: MergedKeys) -> pa.Table:
    if keys.inline is not None:
        return pa.ipc.open_stream(keys.inline).read_all()
    where = f"{store.uri}/{keys.path}"
    try:
        return LanceFileReader(where, storage_options=library_options(store)).read_all().to_table()
    except LIBRARY_ERRORS as error:
        raise storage_failure(error, "reading the keys of a merge", where=where) from error
