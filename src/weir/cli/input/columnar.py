"""Reading Parquet files and Arrow IPC files and streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from weir.cli.input.rows import FileRows, ReadRequest, RowStream, reading

__all__ = ["open_arrow", "open_parquet"]

ARROW_FILE_MAGIC = b"ARROW1"


def open_parquet(stream: BinaryIO, name: str, request: ReadRequest) -> RowStream:
    """Open a Parquet file.

    Parameters
    ----------
    stream : file-like
        Must be able to seek.
    name : str
        What errors call the file.
    request : ReadRequest
        What is wanted.

    Raises
    ------
    InputError
        If it is not a Parquet file, or broken.
    """
    with reading(name):
        file = pq.ParquetFile(stream)
        schema = file.schema_arrow
        wanted = _wanted(schema, request)

        total = file.metadata.num_rows
        batches = file.iter_batches(request.batch_rows, columns=wanted)
        return RowStream(_projected(schema, wanted), _counted(batches, name, request, total_rows=total))


def open_arrow(stream: BinaryIO, name: str, request: ReadRequest, *, is_file: bool) -> RowStream:
    """Open an Arrow IPC file or stream.

    Parameters
    ----------
    stream : file-like
        Must be able to seek if ``is_file``.
    name : str
        What errors call the file.
    request : ReadRequest
        What is wanted.
    is_file : bool
        Whether it is in the file format rather than the stream format.

    Raises
    ------
    InputError
        If it is neither, or broken.
    """
    with reading(name):
        reader = pa.ipc.open_file(stream) if is_file else pa.ipc.open_stream(stream)
        wanted = _wanted(reader.schema, request)

        total = reader.count_rows() if is_file else 0
        batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else iter(reader)
        rows = _counted(batches, name, request, total_rows=total, columns=wanted)
        return RowStream(_projected(reader.schema, wanted), rows)


def _wanted(schema: pa.Schema, request: ReadRequest) -> list[str] | None:
    if not request.ignore_others:
        return None
    return [name for name in schema.names if name in request.schema.names]


def _projected(schema: pa.Schema, wanted: list[str] | None) -> pa.Schema:
    if wanted is not None:
        schema = pa.schema([field for field in schema if field.name in wanted])
    return schema.remove_metadata()


def _counted(
    batches: Iterator[pa.RecordBatch],
    name: str,
    request: ReadRequest,
    *,
    total_rows: int,
    columns: list[str] | None = None,
) -> Iterator[FileRows]:
    first_row = 1
    with reading(name):
        for batch in batches:
            # Other readers of Arrow trust the offsets in a file; a broken one could crash the process.
            batch.validate(full=True)
            table = pa.Table.from_batches([batch])
            if columns is not None:
                table = table.select(columns)
            for start in range(0, table.num_rows, request.batch_rows):
                part = table.slice(start, request.batch_rows)
                fraction = (first_row + part.num_rows - 1) / total_rows if total_rows else 0.0
                yield FileRows(part, first_row, fraction)
                first_row += part.num_rows
