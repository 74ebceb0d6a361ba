"""Arrow streams from clients: bounded before they are decompressed, and checked before use.

A few bytes of Arrow may represent more than fits in memory: batches may be compressed, a column of nulls has
no bytes at all, and many rows may share one long text.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import InputError
from weir.service.refusals import Refusal

__all__ = ["read_stream"]

_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_PLACE_OF_KIND, _PLACE_OF_HEADER = 1, 2
_PLACE_OF_DATA = 1
_PLACE_OF_ROWS, _PLACE_OF_BUFFERS, _PLACE_OF_PACKING = 0, 2, 3


def read_stream(body: bytes, *, most_rows: int, most_bytes: int) -> pa.Table:
    """Return the table of a stream, without buffers shared between rows.

    Parameters
    ----------
    body : bytes
        The stream.
    most_rows, most_bytes : int
        The limits on its decompressed content.

    Raises
    ------
    InputError
        If it is not an Arrow stream, or has an unsupported type.
    Refusal
        413 if it contains more.
    """
    try:
        rows = size = 0
        for message in _messages(body):
            rows_here, bytes_here = _claims(message)
            rows, size = rows + rows_here, size + bytes_here
            _bound(rows, most_rows, "rows")
            _bound(size, most_bytes, "bytes")
        table = pa.ipc.open_stream(body).read_all()
        table.validate(full=True)
        names = table.schema.names
    except (pa.ArrowException, OSError, struct.error, IndexError, UnicodeError) as error:
        raise InputError("the body is not an Arrow stream") from error
    columns = [_plain(name, table.column(at), most_bytes) for at, name in enumerate(names)]
    return pa.Table.from_arrays(columns, names)


def _bound(found: int, most: int, what: str) -> None:
    if found > most:
        raise Refusal(413, "payload_too_large", f"a stream of Arrow has at most {most:,} {what}, unpacked")


def _messages(body: bytes) -> Iterator[pa.Message]:
    reader = pa.ipc.MessageReader.open_stream(body)
    while True:
        try:
            yield reader.read_next_message()
        except StopIteration:
            return


# ---- what a message says of itself, in FlatBuffers ---------------------------------------------------------


class _Fields:
    """The fields of one FlatBuffer table, accessed by number."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._offsets = at - struct.unpack_from("<i", data, at)[0]

    def place(self, number: int) -> int | None:
        """Return the position of a field; None if it is absent."""
        [size] = struct.unpack_from("<H", self._data, self._offsets)
        entry = 4 + 2 * number
        offset = struct.unpack_from("<H", self._data, self._offsets + entry)[0] if entry < size else 0
        return self._at + offset if offset else None

    def number(self, field: int, form: str) -> int:
        """Return the value of a field; 0 if it is absent."""
        at = self.place(field)
        return 0 if at is None else int(struct.unpack_from(form, self._data, at)[0])

    def target(self, field: int) -> int:
        """Return the position that a field refers to."""
        at = self.place(field)
        if at is None:
            raise IndexError("a field is missing")
        return at + int(struct.unpack_from("<I", self._data, at)[0])

    def table(self, field: int) -> _Fields:
        """Return the table that a field refers to."""
        return _Fields(self._data, self.target(field))


def _claims(message: pa.Message) -> tuple[int, int]:
    """Return the number of rows of a message, and its decompressed size in bytes."""
    data, body = message.metadata.to_pybytes(), message.body
    fields = _Fields(data, struct.unpack_from("<I", data)[0])
    kind = fields.number(_PLACE_OF_KIND, "<B")
    if kind not in (_DICTIONARY_BATCH, _RECORD_BATCH):
        return 0, 0
    batch = fields.table(_PLACE_OF_HEADER)
    if kind == _DICTIONARY_BATCH:
        batch = batch.table(_PLACE_OF_DATA)
    rows = abs(batch.number(_PLACE_OF_ROWS, "<q")) if kind == _RECORD_BATCH else 0
    if batch.place(_PLACE_OF_PACKING) is None:
        return rows, 0 if body is None else body.size
    buffers = batch.target(_PLACE_OF_BUFFERS)
    [count] = struct.unpack_from("<I", data, buffers)
    total = 0
    for at in range(count):
        offset, length = struct.unpack_from("<qq", data, buffers + 4 + 16 * at)
        if length:
            [size] = struct.unpack_from("<q", body, offset)
            total += length if size < 0 else size  # what would not become smaller is not packed
    return rows, total


# ---- texts that are shared ---------------------------------------------------------------------------------


def _plain(name: str, column: pa.ChunkedArray, most_bytes: int) -> pa.ChunkedArray:
    """Return a column without bytes shared between values."""
    if isinstance(column.type, pa.BaseExtensionType):
        storage = column.type.storage_type
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], storage)
    type = column.type
    if pa.types.is_dictionary(type) and not _is_shared(type.value_type):
        if _is_text(type.value_type):
            _bound(sum(map(_spelled_out, column.chunks)), most_bytes, "bytes")
        return column.cast(type.value_type)
    if pa.types.is_string_view(type):
        _bound(sum(map(_viewed, column.chunks)), most_bytes, "bytes")
        return column.cast(pa.large_string())
    if _is_shared(type):
        raise InputError(f"attribute {name!r}: no attribute has values of type {type}")
    return column


def _is_text(type: pa.DataType) -> bool:
    return any(check(type) for check in (pa.types.is_string, pa.types.is_large_string))


def _is_shared(type: pa.DataType) -> bool:
    """Whether values of a type may share their bytes, or have none."""
    inner = [type.field(at).type for at in range(type.num_fields)]
    of_type = (
        pa.types.is_dictionary,
        pa.types.is_run_end_encoded,
        pa.types.is_string_view,
        pa.types.is_binary_view,
        pa.types.is_list_view,
        pa.types.is_large_list_view,
    )
    return any(check(type) for check in of_type) or any(
        pa.types.is_null(one) or _is_shared(one) for one in inner
    )


def _spelled_out(chunk: pa.DictionaryArray) -> int:
    lengths = pc.binary_length(chunk.dictionary).cast(pa.int64())
    return pc.sum(lengths.take(chunk.indices)).as_py() or 0


def _viewed(chunk: pa.StringViewArray) -> int:
    """Return the size of view texts: each view begins with its length."""
    views = np.frombuffer(chunk.buffers()[1] or b"", "<i4").reshape(-1, 4)
    return int(views[chunk.offset : chunk.offset + len(chunk), 0].sum(dtype=np.int64))
