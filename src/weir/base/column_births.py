"""The births of a table's columns (:mod:`weir.format.field_births`), including columns added by plain Lance.

A marked column costs nothing. For an unmarked one, earlier versions are searched, newest first, until one
lacks the column: it came with the version after that. A restored version continues the one it copies, so a
column that comes back is the same one. The result is cached in the process, and Weir's next writer marks the
column (:mod:`weir.base.column_marks`), so the search is not repeated. Its time comes with its birth, and so
do its former names; if a version was restored, names in the versions it went back behind are unknown, and
none are returned. Of the two clocks, the committer's and the store's, the earlier time counts: the former may
be ahead of the clock of stored rows, and the latter is that of the copy in a copied table.

In a table without any marked columns, nothing was written by a Weir that marks columns, so their ids alone
identify them. Their birth is searched only where it can matter, and only some versions back: Lance reuses the
id of a dropped column only while no data file has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from weir.base.manifest import TableManifest, read_manifest
from weir.base.publish import TRANSACTIONS
from weir.errors import ObjectNotFoundError
from weir.format.field_births import NOTHING_BEFORE, BeforeMarks, Births, Unmarked, birth_at, microseconds
from weir.format.table_fields import births_in, decode_fields
from weir.format.table_manifest import (
    decode_restored_version,
    ids_in_every_fragment,
    made_at,
    read_head,
)
from weir.storage.interface import ObjectStore

__all__ = ["ColumnBirths", "births_of_columns"]

_FURTHEST = 64
"""Versions to go back at most in a table without marks, where all that can be found is when a column came."""


class ColumnBirths(NamedTuple):
    """The known history of the columns of a version, and of their parts.

    Parameters
    ----------
    births : mapping of int to str or None
        Their births, by field id.
    before : mapping of int to Unmarked
        For unmarked columns, when they came and every name since then; nothing for others, or if a version is
        unknown.
    """

    births: Births
    before: BeforeMarks = NOTHING_BEFORE


def births_of_columns(
    store: ObjectStore, namespace: str, manifest: TableManifest, marks: Births
) -> ColumnBirths:
    """Return the births of the columns of a version.

    Parameters
    ----------
    store : ObjectStore
        The table's store. Nothing is read if all columns are marked, nor if none is and every fragment has
        all of them.
    namespace : str
        Identifies the objects of the table in this process.
    manifest : TableManifest
        The version.
    marks : mapping of int to str or None
        By field id, what its columns and their parts are marked with.

    Raises
    ------
    StorageError
        The store failed.
    CorruptionError
        A manifest of the table cannot be decoded.
    """
    unknown = {number for number, mark in marks.items() if mark is None}
    if not unknown:
        return ColumnBirths(marks)
    key = ("births", namespace, manifest.version, manifest.identity)
    known: ColumnBirths | None = store.engine.cache.get(key)
    if known is None:
        none_marked = len(unknown) == len(marks)
        if none_marked:
            unknown -= _in_every_fragment(manifest)
        births, before = dict(marks), {}
        furthest = _FURTHEST if none_marked else None
        for number, birth, told in _found(store, namespace, manifest, unknown, furthest):
            births[number] = None if none_marked else birth
            before[number] = told
        known = ColumnBirths(births, before)
        store.engine.cache.put(key, known, 200 * len(births))
        store.engine.cache.put(("births", namespace, manifest.version), known, 200 * len(births))
    return known


def _found(
    store: ObjectStore, namespace: str, manifest: TableManifest, unknown: set[int], furthest: int | None
) -> Iterator[tuple[int, str | None, Unmarked]]:
    """Yield the births of unmarked columns, and their known history."""
    newest = manifest.version
    restored = False
    called: dict[int, set[str]] = {number: set() for number in unknown}
    fields = decode_fields(manifest.data, where=manifest.where)
    while unknown and (furthest is None or manifest.version > newest - furthest):
        for field in fields:
            if field.id in unknown:
                called[field.id].add(field.name)
        source = _restored_version(store, manifest)
        restored = restored or source is not None
        before = manifest.version - 1 if source is None else source
        remembered: ColumnBirths | None = store.engine.cache.get(("births", namespace, before))
        older: TableManifest | None = None
        if remembered is None:
            try:
                older = read_manifest(store, before) if before else None
            except ObjectNotFoundError:
                # Cleaned up. A version that is a copy of none had the mark that its column ever got: what
                # bears another one does not belong to this column.
                came = None if restored else birth_at(manifest.version, manifest.identity)
                yield from ((number, came, Unmarked()) for number in unknown)
                return
            fields = () if older is None else decode_fields(older.data, where=older.where)
            remembered = ColumnBirths(births_in(fields))
        births, told = remembered
        came = birth_at(manifest.version, manifest.identity)
        since = _made_at(store, manifest) if unknown - births.keys() else None
        settled = set()
        for number in unknown:
            if number not in births:
                settled.add(number)
                yield number, came, Unmarked(None if restored else frozenset(called[number]), since)
            elif births[number] is not None or older is None:
                settled.add(number)
                names, before_that = told.get(number, Unmarked())
                names = None if restored or names is None else names | called[number]
                yield number, births[number], Unmarked(names, before_that)
        unknown = unknown - settled
        if older is not None:
            manifest = older


def _in_every_fragment(manifest: TableManifest) -> set[int]:
    """Return the columns and parts for which every fragment has data."""
    found = set(ids_in_every_fragment(manifest.data, where=manifest.where))
    # Depth first: what a part is of comes before it.
    for field in reversed(decode_fields(manifest.data, where=manifest.where)):
        if field.id in found:
            found.add(field.parent_id)
    return found


def _made_at(store: ObjectStore, manifest: TableManifest) -> int | None:
    """Return when a version was made, rather too early than too late."""
    meta = store.head(manifest.path)
    said = made_at(manifest.data, where=manifest.where)
    return None if meta is None or said is None else min(microseconds(meta.last_modified), said)


def _restored_version(store: ObjectStore, manifest: TableManifest) -> int | None:
    """Return the version that one is a copy of, if it is of one."""
    name = read_head(manifest.data, where=manifest.where).transaction_file
    path = f"{TRANSACTIONS}/{name.decode(errors='replace')}"
    # A copy of the table may lack it.
    with suppress(ObjectNotFoundError):
        return decode_restored_version(store.get(path), where=f"{store.uri}/{path}") if name else None
    return None
