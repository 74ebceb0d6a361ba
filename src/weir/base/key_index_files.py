"""Checking the files of the key index before key lookups use them.

Flipped bits or zeros in them cause no error: existing keys are not found, and a merge keeps rows that it
should replace. So the page table of each segment is compared with its checksum when it is opened, together
with the pages if they are small, and the whole segment before a merge relies on it; each once per process.
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
    """Make sure that the files of the key index of a version are intact.

    Parameters
    ----------
    base : BaseTable
        The version. Nothing is read on an object store.
    names : collection of str
        Which files of each segment.
    and_up_to : int
        Also check other files up to this size. Default: none.

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
