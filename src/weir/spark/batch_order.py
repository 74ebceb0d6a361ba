"""The batches of a streaming query in a table: none goes to a table that lacks earlier ones.

Spark never commits a batch again once it has committed the next. So a query would go on with a table in whose
place a backup was put meanwhile, and what it had written since the backup would be missing without a word.
The table itself records how many of its batches it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime

from weir.errors import FencedError, InputError, ObjectExistsError, ObjectNotFoundError, PreconditionError
from weir.format import stream_record
from weir.format.stream_record import StreamRecord
from weir.storage.interface import ObjectStore

__all__ = ["batch_of_stream"]


@contextmanager
def batch_of_stream(store: ObjectStore, query_id: str, batch_id: int) -> Iterator[None]:
    """Write a batch of a streaming query in the block, and record then that the table has it.

    Parameters
    ----------
    store : ObjectStore
        The table.
    query_id : str
        The query.
    batch_id : int
        The batch to be written. It may have been written already.

    Raises
    ------
    InputError
        The query wrote its earlier batches elsewhere.
    FencedError
        Earlier batches are gone from the table: a backup was put in its place.
    """
    path = stream_record.stream_path(query_id)
    if batch_id == 0:
        record = StreamRecord(query_id, datetime.now(UTC), 0)
        # If it is there, this is another attempt.
        with suppress(ObjectExistsError):
            store.put_if_absent(path, stream_record.encode(record))
    record, version = _recorded(store, path, batch_id)
    if record.batches < batch_id:
        raise _restored(store, record, batch_id)
    yield
    while record.batches <= batch_id:
        data = stream_record.encode(replace(record, batches=batch_id + 1))
        try:
            store.compare_and_swap(path, data, version)
            return
        except PreconditionError:
            # Our own swap, if its answer was lost; or the same batch written by a driver that was given up.
            before = record
            record, version = _recorded(store, path, batch_id)
            if record.batches < before.batches:
                raise _restored(store, record, batch_id) from None


def _recorded(store: ObjectStore, path: str, batch_id: int) -> tuple[StreamRecord, str]:
    try:
        data, version = store.get_with_version(path)
    except ObjectNotFoundError:
        query_id = path.rpartition("/")[2].removesuffix(".json")
        raise InputError(
            f"the streaming query {query_id} is at batch {batch_id}, and none of its batches is in this "
            "table: its checkpoint belongs to another table, or the table was created again, or a backup of "
            "before it began was put in its place",
            where=store.uri,
            hint="Start the query with a separate checkpoint for every table",
        ) from None
    return stream_record.decode(data, where=f"{store.uri}/{path}"), version


def _restored(store: ObjectStore, record: StreamRecord, batch_id: int) -> FencedError:
    return FencedError(
        f"the streaming query {record.query_id} is at batch {batch_id}, and the table has only its first "
        f"{record.batches}: a backup was put in the place of the table, and what the query had written since "
        "is not in it",
        where=store.uri,
        hint="Put back the checkpoint of the time of the backup as well, or start the query with a new "
        "checkpoint, from where the backup ends",
    )
