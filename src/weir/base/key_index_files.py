"""Checking the files of the key index before key lookups use them.

A bit that turned over in them, or zeros, break nothing: keys that are there are not found, and a merge leaves
the rows in place that it should replace. So the table of pages of each segment is compared with its checksum
when it is opened, with it the pages where they are not many bytes, and all of a segment before a merge goes
by it; each once in a process.
"""

from __future__ import annotations

from collections.abc import Collection

from weir.base.index_files import refuse_damaged_index_files
from weir.base.key_index import key_index_names
from weir.base.table import BaseTable

__all__ = ["PAGE_FILES", "REBUILD", "refuse_damaged_key_index"]

PAGE_FILES = ("page_lookup.lance", "page_data.lance")
REBUILD = "Drop the index (LanceDataset.drop_index) and merge: the index is then built anew"


def refuse_damaged_key_index(
    base: BaseTable, names: Collection[str] = PAGE_FILES, *, and_up_to: int = 0
) -> None:
    """Make sure that the files of the key index of a version are what was written.

    Parameters
    ----------
    base : BaseTable
        The version. Nothing is read on an object store.
    names : collection of str
        Which files of each segment.
    and_up_to : int
        The others too where they have no more bytes. Default: none of them.

    Raises
    ------
    CorruptionError
        One of them is not. It is named.
    """
    if not base.store.is_local:
        return
    refuse_damaged_index_files(
        base,
        set(key_index_names(base.dataset, base.primary_key).values()),
        lambda file: (
            file.path.rpartition("/")[2] in names or (file.size is not None and file.size <= and_up_to)
        ),
        because="keys would not be found in the key index",
        hint=REBUILD,
    )
