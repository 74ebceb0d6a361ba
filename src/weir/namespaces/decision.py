"""Turning a write into row changes, depending on existing documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import InputError
from weir.namespaces.attributes import Kind
from weir.namespaces.conditions import Mask, meets, patched_rows, positions_of
from weir.namespaces.definition import Definition
from weir.namespaces.documents import (
    MOST_BYTES,
    column_table,
    id_column,
    patch_values,
    row_bytes,
    row_table,
)
from weir.namespaces.filter.expression import Filter
from weir.namespaces.names import ID, column_of
from weir.namespaces.values import column_values
from weir.namespaces.write import Documents, Write, Written

__all__ = ["MOST_DELETED", "MOST_PATCHED", "Decided", "Prepared", "decide", "decide_unseen", "prepare"]

MOST_DELETED = 1_000_000
"""Documents that one write deletes by a filter."""

MOST_PATCHED = 100_000
"""Documents that one write patches by a filter; fewer where they take too many bytes."""

_OPERATION = "_op"

Lookup = Callable[[pa.Array], pa.Table]
Scan = Callable[[Filter, Sequence[str], int], pa.Table]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A write whose every value has been checked against the namespace.

    Parameters
    ----------
    write : Write
        What was asked for.
    definition : Definition
        The namespace, with the attributes that the write brings.
    upserts : Table, optional
        Whole documents.
    patches : Table, optional
        Ids and the columns that are patched.
    given : mapping of str to mask
        By column, which documents a patch is for.
    deletes : Array, optional
        Ids.
    """

    write: Write
    definition: Definition
    upserts: pa.Table | None
    patches: pa.Table | None
    given: Mapping[str, Mask]
    deletes: pa.Array | None


@dataclass(slots=True)
class Decided:
    """Row changes in order, and their summary."""

    changes: list[pa.Table] = field(default_factory=list)
    written: Written = field(default_factory=Written)


def prepare(write: Write, definition: Definition) -> Prepared:
    """Check every value of a write.

    Raises
    ------
    InputError
        If one does not fit.
    """
    upserts = patches = deletes = None
    given: dict[str, Mask] = {}
    if write.upserts is not None and len(write.upserts):
        upserts = row_table(column_table(write.upserts, definition), definition)
    if write.patches is not None and len(write.patches):
        patches = column_table(write.patches, definition)
        given = {column_of(name): np.asarray(there) for name, there in write.patches.given.items()}
        _refuse_missing_vectors(write.patches, definition)
    if len(write.deletes):
        deletes = id_column(definition.id_kind, write.deletes)
    if definition.id_kind is Kind.UUID:
        _refuse_doubled(upserts, patches, deletes)
    if write.patch_where is not None:
        patch_values(write.patch_where.values, definition, 1)
    return Prepared(write, definition, upserts, patches, given, deletes)


def _refuse_doubled(upserts: pa.Table | None, patches: pa.Table | None, deletes: pa.Array | None) -> None:
    """Refuse a UUID that is in a write twice, in whatever spelling."""
    ids = [one.column(ID) for one in (upserts, patches) if one is not None]
    ids += [] if deletes is None else [pa.chunked_array([deletes])]
    every = pa.chunked_array([chunk for one in ids for chunk in one.chunks], pa.binary(16)).combine_chunks()
    first = np.asarray(pc.index_in(every, value_set=every))
    doubled = np.flatnonzero(first != np.arange(len(every)))
    if len(doubled):
        raise InputError(f"row {doubled[0]}: the id occurs twice in the write")


def _refuse_missing_vectors(patches: Documents, definition: Definition) -> None:
    for attribute in definition.vectors:
        values = patches.values.get(attribute.name)
        if values is None:
            continue
        there = patches.given.get(attribute.name, [True] * len(values))
        for row, (value, is_given) in enumerate(zip(values, there, strict=True)):
            if is_given and value is None and attribute.name == "vector":
                raise InputError(f"row {row}: attribute 'vector' cannot be removed from a document")


def decide_unseen(prepared: Prepared) -> Decided:
    """Return what a write changes that depends on no existing documents."""
    upserts, deletes, wanted = prepared.upserts, prepared.deletes, prepared.write.return_ids
    changes = [] if upserts is None else [_as_upserts(upserts)]
    changes += [] if deletes is None else [_as_deletes(deletes)]
    return Decided(
        changes,
        Written(
            upserted=0 if upserts is None else upserts.num_rows,
            deleted=0 if deletes is None else len(deletes),
            upserted_ids=column_values(upserts.column(ID)) if wanted and upserts is not None else [],
            deleted_ids=column_values(deletes) if wanted and deletes is not None else [],
            bytes=sum(change.nbytes for change in changes),
        ),
    )


def decide(prepared: Prepared, get: Lookup, scan: Scan) -> Decided:
    """Return what a write changes, given the documents of this moment.

    Parameters
    ----------
    prepared : Prepared
        The write.
    get : callable
        Returns the documents with some ids.
    scan : callable
        Returns some columns of matching documents, up to a limit.
    """
    write, definition = prepared.write, prepared.definition
    decided = Decided()
    remaining = False
    gone: pa.ChunkedArray | None = None
    touched: pa.Table | None = None
    deleted_ids: list[Any] = []
    patched_ids: list[Any] = []
    if write.delete_where is not None:
        found = scan(write.delete_where, [ID], MOST_DELETED + 1)
        found, remaining = _within(found, MOST_DELETED, write.delete_partial, "deletes")
        gone = found.column(ID)
        if found.num_rows:
            decided.changes.append(_as_deletes(gone))
            deleted_ids.extend(_told(gone, write.return_ids))
    if write.patch_where is not None:
        most = min(MOST_PATCHED, max(MOST_BYTES // row_bytes(definition.schema), 1))
        names, passed_over = definition.schema.names, 0 if gone is None else len(gone)
        found = _without(scan(write.patch_where.where, names, most + 1 + passed_over), gone)
        found, more = _within(found, most, write.patch_partial, "patches")
        remaining = remaining or more
        touched = patched_rows(found, patch_values(write.patch_where.values, definition, found.num_rows), {})
        if found.num_rows:
            decided.changes.append(_as_upserts(touched))
            patched_ids.extend(_told(touched.column(ID), write.return_ids))

    def present(ids: pa.Array | pa.ChunkedArray) -> pa.Table:
        """Return documents as they are after what filters have found was deleted and patched."""
        rows = _without(get(ids), gone)
        if touched is None or not touched.num_rows:
            return rows
        both = pa.concat_tables([_without(rows, touched.column(ID)), touched.select(rows.schema.names)])
        return both.filter(pc.is_in(both.column(ID), value_set=ids))

    upserted = _decide_upserts(prepared, present, decided)
    by_patch = _decide_patches(prepared, present, decided)
    if touched is not None and touched.num_rows:
        # A document patched twice is reported once.
        again = pc.is_in(by_patch, value_set=touched.column(ID).combine_chunks())
        by_patch = by_patch.filter(pc.invert(again))
    by_delete = _decide_deletes(prepared, present, decided)
    deleted_ids.extend(by_delete)
    patched_ids.extend(_told(by_patch, write.return_ids))
    decided.written = Written(
        upserted=len(upserted),
        patched=len(patched_ids),
        deleted=len(deleted_ids),
        remaining=remaining,
        upserted_ids=upserted if write.return_ids else [],
        patched_ids=patched_ids if write.return_ids else [],
        deleted_ids=deleted_ids if write.return_ids else [],
        bytes=sum(change.nbytes for change in decided.changes),
    )
    return decided


def _as_deletes(ids: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return ids as changes that delete."""
    return pa.table({ID: ids, _OPERATION: pa.array(["delete"] * len(ids))})


def _as_upserts(rows: pa.Table) -> pa.Table:
    """Return documents as changes that write them whole."""
    return rows.append_column(_OPERATION, pa.array(["upsert"] * rows.num_rows))


def _within(found: pa.Table, most: int, partial: bool, what: str) -> tuple[pa.Table, bool]:
    if found.num_rows <= most:
        return found, False
    if not partial:
        raise InputError(
            f"the filter takes more than {most:,} documents, the most that one write {what}",
            hint="Allow a partial write, and repeat it while documents remain",
        )
    return found.slice(0, most), True


def _without(rows: pa.Table, ids: pa.ChunkedArray | None) -> pa.Table:
    if ids is None or not len(ids) or not rows.num_rows:
        return rows
    return rows.filter(pc.invert(pc.is_in(rows.column(ID), value_set=ids)))


def _told(ids: pa.Array | pa.ChunkedArray, wanted: bool) -> list[Any]:
    """Return ids, or nulls if they were not requested."""
    return column_values(ids) if wanted else [None] * len(ids)


def _decide_upserts(
    prepared: Prepared, present: Callable[[pa.ChunkedArray], pa.Table], decided: Decided
) -> list[Any]:
    rows, write = prepared.upserts, prepared.write
    if rows is None:
        return []
    if write.upsert_condition is not None:
        there = present(rows.column(ID))
        at = positions_of(rows.column(ID), there)
        known = np.flatnonzero(at >= 0)
        met = meets(
            write.upsert_condition,
            there.take(pa.array(at[known])),
            rows.take(pa.array(known)),
            prepared.definition,
        )
        keep = np.ones(rows.num_rows, dtype=bool)
        keep[known] = met
        rows = rows.filter(pa.array(keep))
    if rows.num_rows:
        decided.changes.append(_as_upserts(rows))
    return _told(rows.column(ID), write.return_ids)


def _decide_patches(
    prepared: Prepared, present: Callable[[pa.ChunkedArray], pa.Table], decided: Decided
) -> pa.ChunkedArray:
    patch, write = prepared.patches, prepared.write
    if patch is None:
        return pa.chunked_array([], prepared.definition.id_type.arrow)
    there = present(patch.column(ID))
    at = positions_of(patch.column(ID), there)
    known = np.flatnonzero(at >= 0)
    rows, new = there.take(pa.array(at[known])), patch.take(pa.array(known))
    given = {name: mask[known] for name, mask in prepared.given.items()}
    if write.patch_condition is not None:
        met = meets(write.patch_condition, rows, new, prepared.definition)
        rows, new = rows.filter(pa.array(met)), new.filter(pa.array(met))
        given = {name: mask[met] for name, mask in given.items()}
    if rows.num_rows:
        decided.changes.append(_as_upserts(patched_rows(rows, new, given)))
    return rows.column(ID)


def _decide_deletes(
    prepared: Prepared, present: Callable[[pa.ChunkedArray], pa.Table], decided: Decided
) -> list[Any]:
    ids, write = prepared.deletes, prepared.write
    if ids is None:
        return []
    if write.delete_condition is not None:
        there = present(ids)
        met = meets(write.delete_condition, there, None, prepared.definition)
        ids = there.column(ID).filter(pa.array(met))
    if len(ids):
        decided.changes.append(_as_deletes(ids))
    return _told(ids, write.return_ids)
