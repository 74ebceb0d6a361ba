"""Folding the versions of a key under a merge engine: one function, from oldest to newest.

Everything that combines versions of a key calls it: the flush of a MemTable, reads, merges and the change
feed. It is associative: versions may be folded in parts, and the results folded again. So a part keeps what
affects older versions that it has not seen: a delete stays before the row that followed it.

Everything is done for all keys at once. Most columns come down to the choice of one version for each key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import InputError
from weir.format.distinct_sketch import union_of
from weir.format.merge_engine import EngineKind, Function, MergeEngine
from weir.format.newest import key_codes
from weir.format.wal_entry import TOMBSTONE

__all__ = ["Settled", "fold", "settle"]

Rows = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def fold(
    engine: MergeEngine, versions: pa.Table, primary_key: Sequence[str], *, is_part: bool = False
) -> pa.Table:
    """Return fewer versions with the same result, whatever older or newer ones there are.

    Parameters
    ----------
    engine : MergeEngine
        The engine.
    versions : Table
        Versions of any keys, those of a key from the oldest to the newest, with ``_tombstone``.
    primary_key : sequence of str
        The columns of the key.
    is_part : bool, default False
        Whether an overflowing sum is clamped instead of raising, since a flush has no caller to report to.
        Reading the clamped value raises.

    Returns
    -------
    Table
        At most two versions per key: a delete, and the row that followed it.

    Raises
    ------
    InputError
        A sum has reached the last number of its type.
    """
    groups = _Groups.of(engine, versions, primary_key)
    if groups.chosen is not None:
        kept = np.concatenate([groups.resets, groups.chosen])
        return versions if len(kept) == versions.num_rows else versions.take(pa.array(np.sort(kept)))
    return pa.concat_tables(
        [
            versions.take(pa.array(groups.resets)),
            _combined(engine, versions, groups, primary_key, is_part=is_part),
        ]
    )


@dataclass(frozen=True, slots=True)
class Settled:
    """What all the versions of keys come to.

    Parameters
    ----------
    rows : Table
        One row or tombstone per key.
    known : ndarray of bool
        Per row: whether its key is among the older versions.
    unchanged : ndarray of bool
        Per row: whether it is one of the older versions itself.
    """

    rows: pa.Table
    known: Flags
    unchanged: Flags


def settle(engine: MergeEngine, versions: pa.Table, primary_key: Sequence[str], *, older: int = 0) -> Settled:
    """Return what all the versions of keys come to.

    Parameters
    ----------
    engine, versions, primary_key
        As for :func:`fold`; the versions are all there are.
    older : int, default 0
        How many of them, at the beginning, are rows of the base table.

    Raises
    ------
    InputError
        A sum has reached the last number of its type.
    """
    groups = _Groups.of(engine, versions, primary_key)
    in_base = np.zeros(groups.count, dtype=bool)
    in_base[groups.codes[:older]] = True
    chosen = groups.newest if groups.chosen is None else groups.chosen
    gone = groups.resets[~np.isin(groups.codes[groups.resets], groups.codes[chosen])]
    known = in_base[groups.codes[np.concatenate([chosen, gone])]]
    if groups.chosen is None:
        rows = pa.concat_tables(
            [_combined(engine, versions, groups, primary_key), versions.take(pa.array(gone))]
        )
        return Settled(rows, known, np.zeros(rows.num_rows, dtype=bool))
    kept = np.concatenate([chosen, gone])
    return Settled(versions.take(pa.array(kept)), known, kept < older)


@dataclass(frozen=True, slots=True)
class _Groups:
    """The versions by key.

    Parameters
    ----------
    codes : ndarray of int64
        Per version: the number of its key.
    count : int
        Every number is below this.
    live : ndarray of int64
        The versions that count, by key, those of a key from the oldest to the newest.
    starts : ndarray of int64
        Where the versions of each key begin in ``live``.
    resets : ndarray of int64
        For every key the last delete, if any, which cancels everything before it.
    chosen : ndarray of int64 or None
        For every key with live versions, the version that is its row; None if columns are combined.
    """

    codes: Rows
    count: int
    live: Rows
    starts: Rows
    resets: Rows
    chosen: Rows | None

    @classmethod
    def of(cls, engine: MergeEngine, versions: pa.Table, primary_key: Sequence[str]) -> _Groups:
        codes, count = key_codes([versions.column(name) for name in primary_key])
        deletes = _flags(versions.column(TOMBSTONE))
        sequence = _ranks(versions.column(engine.sequence_by)) if engine.sequence_by else None
        # A delete with a sequence is a version like any other; one without removes what came before it.
        resets = deletes if sequence is None else deletes & (sequence == 0)
        last = np.full(count, -1, dtype=np.int64)
        at = np.flatnonzero(resets)
        # NumPy assigns in order, so that the last stays.
        last[codes[at]] = at
        live = np.flatnonzero(np.arange(len(codes)) > last[codes])
        order = (codes[live],) if sequence is None else (sequence[live], codes[live])
        live = live[np.lexsort(order)]
        begins = np.ones(len(live), dtype=bool)
        begins[1:] = codes[live][1:] != codes[live][:-1]
        starts = np.flatnonzero(begins)
        chosen = None
        if engine.kind is EngineKind.FIRST_ROW:
            chosen = live[starts]
        elif engine.kind is EngineKind.LAST_ROW:
            chosen = live[_ends(starts, len(live))]
        return cls(codes, count, live, starts, last[last >= 0], chosen)

    @property
    def newest(self) -> Rows:
        """For every key with live versions the last one."""
        return self.last_of()

    def last_of(self, counts: Flags | None = None) -> Rows:
        """Return of every key its last live version, or the last that counts; -1 if none does."""
        places = np.arange(len(self.live))
        if counts is not None:
            places = np.where(counts[self.live], places, -1)
        if not len(self.starts):
            return places
        found = np.maximum.reduceat(places, self.starts)
        return np.where(found >= 0, self.live[found], -1)

    def highest_of(self, ranks: Rows) -> Rows:
        """Return of every key the last of its live versions with the highest rank; -1 if all have rank 0."""
        if not len(self.starts):
            return self.starts
        mine = ranks[self.live]
        highest = np.maximum.reduceat(mine, self.starts)
        sizes = np.diff([*self.starts, len(self.live)])
        counts = np.zeros(len(self.codes), dtype=bool)
        counts[self.live] = (mine == np.repeat(highest, sizes)) & (mine > 0)
        return self.last_of(counts)


def _combined(
    engine: MergeEngine,
    versions: pa.Table,
    groups: _Groups,
    primary_key: Sequence[str],
    *,
    is_part: bool = False,
) -> pa.Table:
    """Return of every key with live versions its row, column by column."""
    newest = groups.newest
    functions = dict(engine.functions)
    in_group: dict[str, Rows] = {}
    for sequence, followers in engine.groups:
        place = groups.highest_of(_ranks(versions.column(sequence)))
        in_group |= dict.fromkeys((sequence, *followers), place)
    columns: list[pa.Array | pa.ChunkedArray] = []
    for field in versions.schema:
        values = versions.column(field.name)
        if field.name in in_group:
            columns.append(_taken(values, in_group[field.name]))
        elif field.name == TOMBSTONE:
            columns.append(_taken(values, newest))
        else:
            function = functions.get(field.name, Function.LAST_NON_NULL)
            if function not in (Function.SUM, Function.COUNT):
                columns.append(_column(function, values, groups))
                continue
            addends = pc.fill_null(values, 1) if function is Function.COUNT else values
            beyond = _beyond(addends, groups)
            if beyond and not is_part:
                version = groups.live[groups.starts[min(beyond)]]
                raise _too_large(field, versions.select(list(primary_key)).slice(version, 1))
            columns.append(_sums(addends, groups, beyond))
    return pa.Table.from_arrays(columns, schema=versions.schema)


def _column(function: Function, values: pa.ChunkedArray, groups: _Groups) -> pa.Array | pa.ChunkedArray:
    if function is Function.LAST:
        return _taken(values, groups.newest)
    if function is Function.LAST_NON_NULL:
        return _taken(values, groups.last_of(_flags(values.is_valid())))
    if function in (Function.MIN, Function.MAX):
        return _taken(values, groups.highest_of(_ranks(values, descending=function is Function.MIN)))
    if function is Function.DISTINCT_SKETCH:
        return _united(values, groups)
    return _joined(values, groups, distinct=function is Function.DISTINCT_UNION)


def _taken(values: pa.ChunkedArray, places: Rows) -> pa.ChunkedArray:
    """Return the values at some places; null where a place is -1."""
    absent = places < 0
    return values.take(pa.array(places, mask=absent) if absent.any() else pa.array(places))


def _sums(values: pa.ChunkedArray, groups: _Groups, beyond: Mapping[int, int]) -> pa.Array:
    there = _flags(values.is_valid())[groups.live]
    zero = pa.scalar(0, pa.int64()).cast(values.type)
    numbers = pc.fill_null(values, zero).to_numpy()[groups.live]
    if not len(groups.starts):
        return pa.nulls(0, values.type)
    with np.errstate(over="ignore", invalid="ignore"):
        # Of floats, which become infinite, or no number.
        sums = np.add.reduceat(numbers, groups.starts)
    for key, last in beyond.items():
        sums[key] = last
    counts = np.add.reduceat(there.astype(np.int64), groups.starts)
    return pa.array(sums, values.type, mask=counts == 0)


def _beyond(values: pa.ChunkedArray, groups: _Groups) -> dict[int, int]:
    """Return the keys whose sums have reached the last number of their type, each with that number.

    What has once been there stays there: there is no telling how far beyond it was.
    """
    if pa.types.is_floating(values.type) or not len(groups.starts):
        return {}
    numbers = pc.fill_null(values, pa.scalar(0, values.type)).to_numpy()[groups.live]
    bounds = np.iinfo(numbers.dtype)
    ends = _ends(groups.starts, len(groups.live)) + 1
    most = int((ends - groups.starts).max())
    least = bounds.min if bounds.min else -1
    if int(numbers.min()) * most > least and int(numbers.max()) * most < bounds.max:
        return {}
    # Accurate enough to select the keys to check: the error of a double is less than one half.
    rough = np.add.reduceat(np.abs(numbers.astype(np.float64)), groups.starts)
    found = {}
    for key in np.flatnonzero(rough >= bounds.max / 2).tolist():
        addends = numbers[groups.starts[key] : ends[key]].tolist()
        at_end = next((one for one in addends if one in (least, bounds.max)), sum(addends))
        if not least < at_end < bounds.max:
            found[key] = bounds.max if at_end > 0 else least
    return found


def _too_large(field: pa.Field, key: pa.Table) -> InputError:
    named = ", ".join(f"{name} = {value!r}" for name, value in key.to_pylist()[0].items())
    return InputError(
        f"the sum of the row {named} is out of range for its type, {field.type}",
        where=field.name,
        hint="Delete the row: its sums then start over. A float64 holds larger sums, but loses digits",
    )


def _united(values: pa.ChunkedArray, groups: _Groups) -> pa.ChunkedArray:
    """Return of every key the union of its sketches."""
    live = groups.live[_flags(values.is_valid())[groups.live]]
    begins = np.ones(len(live), dtype=bool)
    begins[1:] = groups.codes[live][1:] != groups.codes[live][:-1]
    starts = np.flatnonzero(begins)
    # Most keys have one, which stays as it is; the library makes the others one by one.
    only = groups.last_of(_flags(values.is_valid()))
    several = np.flatnonzero(np.diff([*starts, len(live)]) > 1)
    if not len(several):
        return _taken(values, only)
    united = []
    for at in several:
        end = starts[at + 1] if at + 1 < len(starts) else len(live)
        united.append(union_of(values.take(pa.array(live[starts[at] : end])).to_pylist()))
    keys = groups.codes[live[starts[several]]]
    place = np.full(groups.count, -1, dtype=np.int64)
    place[keys] = values.length() + np.arange(len(keys))
    made = place[groups.codes[groups.live[groups.starts]]]
    both = pa.chunked_array([*values.chunks, pa.array(united, values.type)], values.type)
    return _taken(both, np.where(made >= 0, made, only))


def _joined(values: pa.ChunkedArray, groups: _Groups, *, distinct: bool) -> pa.Array:
    """Return of every key the elements of its lists, one list after the other."""
    kind = values.type
    lists = values.take(pa.array(groups.live)).combine_chunks()
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    sizes = np.diff([*groups.starts, len(groups.live)]).astype(np.int64)
    group_of_list = np.repeat(np.arange(len(groups.starts)), sizes)
    group = np.repeat(group_of_list, lengths)
    elements = pc.list_flatten(lists)
    if distinct and len(elements):
        encoded = pc.dictionary_encode(elements, null_encoding="encode")
        numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        _, first = np.unique(group * len(encoded.dictionary) + numbers, return_index=True)
        kept = np.sort(first)
        elements, group = elements.take(pa.array(kept)), group[kept]
    ends = np.cumsum(np.bincount(group, minlength=len(groups.starts)))
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    there = np.zeros(len(groups.starts), dtype=bool)
    there[group_of_list[_flags(lists.is_valid())]] = True
    offset_type = pa.int64() if pa.types.is_large_list(kind) else pa.int32()
    made = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    return made.from_arrays(pa.array(offsets).cast(offset_type), elements, type=kind, mask=pa.array(~there))


def _ends(starts: Rows, length: int) -> Rows:
    """Return the last place of every group."""
    return np.append(starts[1:], length)[: len(starts)] - 1


def _ranks(values: pa.ChunkedArray, *, descending: bool = False) -> Rows:
    """Return a number per value that ascends as the values do, equal for equal ones; 0 for null."""
    flat = values.combine_chunks()
    if isinstance(flat, pa.ChunkedArray):
        flat = pa.concat_arrays(flat.chunks) if flat.num_chunks else pa.nulls(0, values.type)
    ranks = pc.rank(flat, sort_keys="descending" if descending else "ascending", tiebreaker="dense")
    numbers: Rows = ranks.to_numpy().astype(np.int64)
    return np.where(_flags(values.is_valid()), numbers, 0)


def _flags(values: pa.ChunkedArray | pa.Array) -> Flags:
    flat = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if isinstance(flat, pa.ChunkedArray):
        flat = pa.concat_arrays(flat.chunks) if flat.num_chunks else pa.array([], pa.bool_())
    flags: Flags = pc.fill_null(flat, False).to_numpy(zero_copy_only=False)
    return flags
