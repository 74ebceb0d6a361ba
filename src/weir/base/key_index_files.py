"""The files of the key index, looked at before rows are looked up by them.

A bit that turned over in them, or zeros, break nothing: keys that are there are not found, and a merge leaves
the rows in place that it should replace. So the table of pages of each segment is compared with its checksum
when it is opened, and all of a segment before a merge goes by it; each once in a process.
"""

from __future__ import annotations

from collections.abc import Collection

from weir.base.key_index import key_index_names
from weir.base.manifest import read_manifest
from weir.base.sound_files import refuse_unsound
from weir.base.table import BaseTable
from weir.errors import ObjectNotFoundError
from weir.format.table_manifest import decode_files, decode_index_section

__all__ = ["PAGE_FILES", "REBUILD", "refuse_damaged_key_index"]

PAGE_FILES = ("page_lookup.lance", "page_data.lance")
REBUILD = "Drop the index (LanceDataset.drop_index) and merge: the index is then built anew"
_REACH = 64
"""Versions after the one that a segment was built from in which its commit is looked for."""


def refuse_damaged_key_index(base: BaseTable, names: Collection[str] = PAGE_FILES) -> None:
    """Make sure that the files of the key index of a version are what was written.

    Parameters
    ----------
    base : BaseTable
        The version. Nothing is read on an object store.
    names : collection of str
        Which files of each segment.

    Raises
    ------
    CorruptionError
        One of them is not. It is named.
    """
    store = base.store
    if not store.is_local:
        return
    try:
        manifest = read_manifest(store, base.version)
    except ObjectNotFoundError:
        return  # cleaned up meanwhile
    indexes = set(key_index_names(base.dataset, base.primary_key).values())
    built = {
        str(entry.uuid): entry.dataset_version
        for entry in decode_index_section(manifest.data, where=manifest.where)
        if entry.name in indexes
    }
    files = [file.path.split("/") for file in decode_files(manifest.data, where=manifest.where).indexes]
    chosen = {"/".join(one): one[1] for one in files if one[1] in built and one[-1] in names}
    refuse_unsound(
        store,
        chosen,
        {version + 1 + more for version in built.values() for more in range(_REACH)},
        because="keys would not be found in the key index",
        hint=REBUILD,
    )
