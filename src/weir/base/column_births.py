"""The births of a table's columns (:mod:`weir.format.field_births`), also of those that plain Lance adds.

A column that is marked costs nothing. For one that is not, the versions before are looked at, newest first,
until one lacks the column: it came with the version after. A version that was restored goes on from the one
it is a copy of, so a column that comes back is the one it was. What was found is remembered in the process,
and the next writer of Weir marks the column (:mod:`weir.base.column_marks`): nobody has to look again.
The names that the column has had on the way are found with its birth; where a version was restored, those of
the versions that it went back behind are not known, and so none are.

In a table none of whose columns are marked, nothing was written by a Weir that marks columns: they go by
their ids alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from weir.base.manifest import TableManifest, read_manifest
from weir.base.publish import TRANSACTIONS
from weir.errors import ObjectNotFoundError
from weir.format.field_births import NO_NAMES, Births, Names, birth_at
from weir.format.table_fields import births_in, decode_fields
from weir.format.table_manifest import decode_restored_version, read_head
from weir.storage.interface import ObjectStore

__all__ = ["ColumnBirths", "births_of_columns"]


class ColumnBirths(NamedTuple):
    """What is known of the columns of a version, and of their parts.

    Parameters
    ----------
    births : mapping of int to str or None
        Their births, by field id.
    names : mapping of int to frozenset of str
        Of those that are not marked, every name since their birth; of others, and where a version is not
        known, nothing.
    """

    births: Births
    names: Names = NO_NAMES


def births_of_columns(
    store: ObjectStore, namespace: str, manifest: TableManifest, marks: Births
) -> ColumnBirths:
    """Return the births of the columns of a version.

    Parameters
    ----------
    store : ObjectStore
        The table's store. Nothing is read if all columns are marked, or none.
    namespace : str
        What tells the objects of the table from all others in this process.
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
    if not unknown or len(unknown) == len(marks):
        return ColumnBirths(marks)
    key = ("births", namespace, manifest.version, manifest.identity)
    known: ColumnBirths | None = store.engine.cache.get(key)
    if known is None:
        births, names = dict(marks), {}
        for number, birth, called in _found(store, namespace, manifest, unknown):
            births[number] = birth
            if called is not None:
                names[number] = called
        known = ColumnBirths(births, names)
        store.engine.cache.put(key, known, 200 * len(births))
        store.engine.cache.put(("births", namespace, manifest.version), known, 200 * len(births))
    return known


def _found(
    store: ObjectStore, namespace: str, manifest: TableManifest, unknown: set[int]
) -> Iterator[tuple[int, str | None, frozenset[str] | None]]:
    """Yield the births of columns without a mark, and their names since then."""
    restored = False
    called: dict[int, set[str]] = {number: set() for number in unknown}
    fields = decode_fields(manifest.data, where=manifest.where)
    while unknown:
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
                # bears another one is no value of this column.
                came = None if restored else birth_at(manifest.version, manifest.identity)
                yield from ((number, came, None) for number in unknown)
                return
            fields = () if older is None else decode_fields(older.data, where=older.where)
            remembered = ColumnBirths(births_in(fields))
        births, names = remembered
        came = birth_at(manifest.version, manifest.identity)
        settled = set()
        for number in unknown:
            if number not in births:
                settled.add(number)
                yield number, came, None if restored else frozenset(called[number])
            elif births[number] is not None or older is None:
                settled.add(number)
                known = names.get(number)
                yield number, births[number], None if restored or known is None else known | called[number]
        unknown = unknown - settled
        if older is not None:
            manifest = older


def _restored_version(store: ObjectStore, manifest: TableManifest) -> int | None:
    """Return the version that one is a copy of, if it is of one."""
    name = read_head(manifest.data, where=manifest.where).transaction_file
    path = f"{TRANSACTIONS}/{name.decode(errors='replace')}"
    # A copy of the table may lack it.
    with suppress(ObjectNotFoundError):
        return decode_restored_version(store.get(path), where=f"{store.uri}/{path}") if name else None
    return None
