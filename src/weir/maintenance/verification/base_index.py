"""Verifying an index of the base table: its files are intact, and a BTREE has the rows it covers.

A lookup or a filter that is answered from an index believes it: a row that the index has lost is not found,
and nothing else notices.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.file import LanceFileReader

from weir.base.dataset import library_options
from weir.base.index_list import REUSE_INDEX, list_indexes
from weir.base.index_store import index_store
from weir.base.table import BaseTable
from weir.errors import CorruptionError, StorageError
from weir.format.index_details import INDEX_NAME
from weir.format.plain_keys import stored_keys
from weir.lsm.damage import reading
from weir.maintenance.verification.finding import Finding, Findings
from weir.maintenance.verification.isolation import isolated

__all__ = ["BaseIndexCheck", "base_index_checks", "check_base_index"]

_PAGES = "page_data.lance"
_PAGE_TABLE = "page_lookup.lance"


@dataclass(frozen=True, slots=True)
class BaseIndexCheck:
    """The task of checking one segment of an index. Picklable.

    Parameters
    ----------
    base : BaseTable
        The base table.
    name, column : str
        The index, and the column it is on; of several, the first.
    uuid : str
        Name of the segment's directory.
    fragment_ids : frozenset of int
        The fragments it speaks for, as far as they exist.
    nbytes : int or None
        What its files come to, where the table says.
    rows : bool
        Whether its entries are to be compared with the rows.
    """

    base: BaseTable
    name: str
    column: str
    uuid: str
    fragment_ids: frozenset[int]
    nbytes: int | None
    rows: bool

    @property
    def path(self) -> str:
        """The segment's directory."""
        return f"_indices/{self.uuid}"


def base_index_checks(base: BaseTable, *, rows: bool) -> list[BaseIndexCheck]:
    """Return a task for every segment of every index of the base table.

    Parameters
    ----------
    base : BaseTable
        The base table.
    rows : bool
        Whether BTREE indexes are to be compared with the rows of the base table.
    """
    present = {fragment.fragment_id for fragment in base.dataset.get_fragments()}
    try:
        indexes = list_indexes(base.dataset)
    except CorruptionError:
        return []  # reported where the table as a whole is checked
    rows = rows and REUSE_INDEX not in {index.name for index in indexes}
    return [
        BaseIndexCheck(
            base,
            index.name,
            index.field_names[0],
            str(segment.uuid),
            frozenset(present.intersection(segment.fragment_ids)),
            segment.size_bytes,
            rows and index.index_type == "BTree",
        )
        for index in indexes
        if index.name != INDEX_NAME and index.field_names
        for segment in index.segments
    ]


def check_base_index(check: BaseIndexCheck) -> tuple[Finding, ...]:
    """Read all files of a segment and return what is wrong with it."""
    # A branch or a clone shares segments with the table it was made from.
    store = index_store(check.base, check.uuid)
    findings = Findings(store.uri)
    sizes = {one.path.removeprefix(f"{check.path}/"): one.size for one in store.list(check.path)}
    found = sum(sizes.values())
    if not sizes and check.nbytes is None and not check.fragment_ids:
        return ()  # an index of vectors that was created before there was any: only the table knows of it
    if not sizes or check.nbytes not in (None, found):
        findings.error(
            "base_index.files",
            check.path,
            f"index {check.name!r} has files of {found} bytes, and {check.nbytes or 'some'} were written",
        )
        return tuple(findings.found)
    # Without the rows it fails over the index alone; those are checked for themselves.
    for attempt in (check, replace(check, rows=False)) if check.rows else (check,):
        try:
            what, where = f"index {check.name!r}", f"{store.uri}/{check.path}"
            return isolated(_check_content, _Content(attempt, tuple(sorted(sizes))), what=what, where=where)
        except (CorruptionError, StorageError) as error:
            message = error.message
    findings.error("base_index.unreadable", check.path, message)
    return tuple(findings.found)


@dataclass(frozen=True, slots=True)
class _Content:
    """A segment, and the names of its files."""

    check: BaseIndexCheck
    names: tuple[str, ...]


def _check_content(content: _Content) -> tuple[Finding, ...]:
    """Read the files of a segment, of which nothing says that they are what was written."""
    check = content.check
    findings = Findings(index_store(check.base, check.uuid).uri)
    try:
        files = {name: _read(check, name, keep=name in (_PAGES, _PAGE_TABLE)) for name in content.names}
        if check.rows and files.get(_PAGES) is not None:
            _check_pages(check, files[_PAGES], files.get(_PAGE_TABLE), findings)
            if not findings.found:
                _check_rows(check, files[_PAGES], findings)
    except (CorruptionError, StorageError) as error:
        findings.error("base_index.unreadable", check.path, error.message)
    return tuple(findings.found)


def _read(check: BaseIndexCheck, name: str, *, keep: bool) -> pa.Table | None:
    """Read every value of a file; return them if they are to be kept."""
    uri = f"{index_store(check.base, check.uuid).uri}/{check.path}/{name}"
    with reading(f"the file {name} of index {check.name!r}", uri):
        reader = LanceFileReader(uri, storage_options=library_options(check.base.store))
        batches = reader.read_all().to_batches()
        if keep:
            return pa.Table.from_batches(batches, reader.metadata().schema)
        for _ in batches:
            pass
    return None


def _check_pages(check: BaseIndexCheck, data: pa.Table, lookup: pa.Table | None, findings: Findings) -> None:
    """Compare the table of the pages with the pages: a search goes by it."""
    names = {"values", "ids"} - set(data.column_names)
    if lookup is None or names or {"min", "max", "null_count", "page_idx"} - set(lookup.column_names):
        findings.error("base_index.pages", check.path, f"index {check.name!r} lacks parts that a BTREE has")
        return
    size = (lookup.schema.metadata or {}).get(b"batch_size", b"")
    if not size.isdigit() or not 0 < len(size) < 10 or not int(size):
        return
    page_rows, rows = int(size), data.num_rows
    values = data.column("values").combine_chunks()
    nulls = lookup.column("null_count").to_numpy()
    if lookup.num_rows != -(-rows // page_rows):
        findings.error(
            "base_index.pages",
            check.path,
            f"index {check.name!r} has {lookup.num_rows} pages for {rows} rows, {page_rows} on each",
        )
    elif rows and not nulls.any() and not values.null_count and not pa.types.is_floating(values.type):
        starts = np.arange(0, rows, page_rows)
        ends = np.minimum(starts + page_rows, rows) - 1
        ascends = rows == 1 or pc.all(pc.less_equal(values[:-1], values[1:])).as_py()
        same = all(
            lookup.column(name).combine_chunks().equals(values.take(pa.array(at)))
            for name, at in (("min", starts), ("max", ends))
        )
        if not ascends or not same:
            text = "does not have the pages that it says" if ascends else "is not in the order of its values"
            findings.error("base_index.pages", check.path, f"index {check.name!r} {text}")


def _check_rows(check: BaseIndexCheck, data: pa.Table, findings: Findings) -> None:
    """Compare the entries with the rows of the fragments that the segment speaks for."""
    if not check.fragment_ids:
        return
    try:
        with reading(f"version {check.base.version} of the base table", check.base.uri):
            rows = _rows_of(check.base.dataset, check.column, check.fragment_ids)
    except (CorruptionError, StorageError):
        return  # to be reported where the base table is checked
    values = data.column("values").combine_chunks()
    held = stored_keys(rows.column(0).combine_chunks())
    if values.type != held.type:
        return  # a form of its own
    ids = data.column("ids").to_numpy()
    order = np.argsort(ids, kind="stable")
    live = rows.column("_rowaddr").to_numpy()
    at = np.searchsorted(ids, live, sorter=order)
    known = at < len(ids)
    known[known] = ids[order[at[known]]] == live[known]
    lost = len(live) - int(np.count_nonzero(known))
    other = 0
    if not pa.types.is_floating(held.type):
        entries = values.take(pa.array(order[at[known]]))
        here = held.filter(pa.array(known))
        same = pc.or_kleene(pc.equal(entries, here), pc.and_(pc.is_null(entries), pc.is_null(here)))
        other = len(here) - int(pc.sum(pc.fill_null(same, False)).as_py() or 0)
    if lost or other:
        findings.error(
            "base_index.rows",
            check.path,
            f"index {check.name!r} lacks {lost} of {len(live)} rows, and has another value for {other}",
        )


def _rows_of(dataset: lance.LanceDataset, column: str, fragment_ids: Collection[int]) -> pa.Table:
    fragments = [one for one in dataset.get_fragments() if one.fragment_id in fragment_ids]
    return dataset.scanner(columns=[column], fragments=fragments, with_row_address=True).to_table()
