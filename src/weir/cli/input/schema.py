"""The schema of a file, for creating a table like it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from weir.cli.input.files import FileBytes, RowFile, find_files, open_bytes, open_rows
from weir.cli.input.formats import FileFormat
from weir.cli.input.prefixed import read_fully
from weir.cli.input.rows import ReadRequest, reading
from weir.errors import InputError

__all__ = ["read_schema"]

_SAMPLE_BYTES = 4 << 20


def read_schema(path: str, file_format: FileFormat | None = None) -> pa.Schema:
    """Return the columns of a file.

    Those of Parquet and Arrow files are in the file. Those of CSV and JSON lines are inferred from the
    first megabytes: whole numbers are int64, instants have microseconds, what is always null is text.

    Parameters
    ----------
    path : str
        The file.
    file_format : FileFormat, optional
        Its format. Default: told from its suffix, or else from its first bytes.

    Raises
    ------
    InputError
        If the file is missing, broken, or of no known format.
    """
    file = find_files([path])[0]
    with open_bytes(file, file_format) as opened:
        if opened.file_format in (FileFormat.CSV, FileFormat.JSONL):
            with reading(file.name):
                return _inferred(file, opened)
    with open_rows(file, file_format, ReadRequest(pa.schema([]))) as rows:
        return rows.schema


def _inferred(file: RowFile, opened: FileBytes) -> pa.Schema:
    sample = read_fully(opened.stream, _SAMPLE_BYTES)
    if opened.stream.read(1):
        # The sample ends somewhere in a row; what stands before the last line break is whole.
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    if not sample.strip():
        raise InputError("the file is empty", where=file.name, hint="Give the columns with --schema")
    size = len(sample) + 1
    source = pa.BufferReader(sample)
    if opened.file_format is FileFormat.CSV:
        table = pa_csv.read_csv(
            source,
            pa_csv.ReadOptions(block_size=size),
            pa_csv.ParseOptions(delimiter=opened.delimiter or ",", newlines_in_values=True),
        )
    else:
        table = pa_json.read_json(source, pa_json.ReadOptions(block_size=size))
    return pa.schema([pa.field(field.name, _widened(field.type)) for field in table.schema])


def _widened(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if types.is_null(kind):
        return pa.string()
    if types.is_list(kind):
        return pa.list_(_widened(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, _widened(field.type)) for field in kind])
    return kind
