"""All rows of some columns of a generation, in their order.

A generation is mostly one file from which nothing was deleted. Read as such, without a query plan, it takes
half the time: the first read of a table reads the keys of every generation.
"""

from __future__ import annotations

from collections.abc import Sequence

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.file import LanceFileReader
from lance.fragment import FragmentMetadata

from weir.errors import CorruptionError
from weir.format.row_address import FRAGMENT_BITS

__all__ = ["are_plain", "whole_rows"]

RowIds = npt.NDArray[np.uint64]

_DATA = "data"
_FIRST_READ_AS_FILES = 2
"""The first major version of files that the library's reader of single files knows."""
_BATCH_ROWS = 131_072
_STORED_OTHERWISE = {b"ARROW:extension:name", b"lance-encoding:blob"}
"""Keys of the metadata of columns that the library reads in another form than it has stored them."""


def whole_rows(
    dataset: lance.LanceDataset, columns: Sequence[str], *, is_local: bool
) -> tuple[pa.Table, RowIds]:
    """Return all rows of a generation that are not deleted in it, in their order.

    Parameters
    ----------
    dataset : LanceDataset
        The generation.
    columns : sequence of str
        Columns of the result, top-level columns of the dataset.
    is_local : bool
        Whether it is on local disk. Elsewhere the library knows better how to ask for what it needs.

    Returns
    -------
    rows : Table
        The columns.
    row_ids : ndarray of uint64
        The row id of each row.

    Raises
    ------
    CorruptionError
        Its file has another number of rows than the manifest says.
    """
    fragment = _only_file(dataset) if is_local and columns and are_plain(dataset.schema, columns) else None
    if fragment is not None:
        where = f"{dataset.uri}/{_DATA}/{fragment.files[0].path}"
        return _read(LanceFileReader(where, columns=list(columns)), columns, fragment, where)
    rows = dataset.scanner(columns=list(columns), with_row_id=True, scan_in_order=True).to_table()
    row_ids = rows.column("_rowid").combine_chunks().to_numpy(zero_copy_only=False)
    return rows.select(list(columns)), row_ids.astype(np.uint64, copy=False)


def _read(
    reader: LanceFileReader, columns: Sequence[str], fragment: FragmentMetadata, where: str
) -> tuple[pa.Table, RowIds]:
    rows = reader.read_all(batch_size=_BATCH_ROWS).to_table()
    if rows.num_rows != fragment.physical_rows:
        raise CorruptionError(
            f"{rows.num_rows} rows were read of {fragment.physical_rows} that the manifest counts",
            where=where,
        )
    first = fragment.id << FRAGMENT_BITS
    return rows.select(list(columns)), np.arange(first, first + rows.num_rows, dtype=np.uint64)


def are_plain(schema: pa.Schema, columns: Sequence[str]) -> bool:
    """Whether columns are in a file as they are read: JSON, for one, is stored in another form."""
    fields = [schema.field(name) for name in columns]
    return all(
        _is_plain(field.type) and not _STORED_OTHERWISE & (field.metadata or {}).keys() for field in fields
    )


def _is_plain(kind: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(kind):
        return bool(pa.types.is_primitive(kind.value_type))
    return not pa.types.is_nested(kind) and not isinstance(kind, pa.BaseExtensionType | pa.DictionaryType)


def _only_file(dataset: lance.LanceDataset) -> FragmentMetadata | None:
    """Return the fragment of a dataset that is one file as it was written, or None."""
    # Of a later version, columns may have other names than in the file, which go by their ids.
    if dataset.version != 1 or dataset.has_stable_row_ids:
        return None
    fragments = dataset.get_fragments()
    if len(fragments) != 1:
        return None
    fragment = fragments[0].metadata
    if len(fragment.files) != 1 or fragment.deletion_file is not None or fragment.overlays:
        return None
    (file,) = fragment.files
    return fragment if file.base_id is None and file.file_major_version >= _FIRST_READ_AS_FILES else None
