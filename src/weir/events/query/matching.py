"""Matching of the steps of a sequence: one ordered pass over links and times of all events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["matched"]

_Rows = NDArray[np.int64]
_MOST = 1 << 62


def matched(
    links: Sequence[pa.ChunkedArray],
    times: Sequence[pa.ChunkedArray],
    ids: Sequence[pa.ChunkedArray],
    before: Sequence[bool],
    within: timedelta | None,
) -> list[_Rows]:
    """Return the matching events of every step, in the order of the ids of the first step.

    Parameters
    ----------
    links, times, ids : sequence of ChunkedArray
        For every step: the link values of its events, their times and their ids.
    before : sequence of bool
        For every step after the first, whether it precedes the previous step: if so the latest event strictly
        before matches, otherwise the earliest not before.
    within : timedelta, optional
        The maximum time between the first and the last step, inclusive.

    Returns
    -------
    list of int64 arrays
        For every step the row numbers of its events, by match.
    """
    codes = _codes(links)
    micros = [_micros(one) for one in times]
    width, times_of = _one_number(codes, micros)
    numbers = [pc.fill_null(one, -1).to_numpy().astype(np.int64) for one in ids]
    keys, usable = [], []
    for code, (values, valid) in zip(codes, micros, strict=True):
        keys.append(code * width + times_of(values))
        usable.append(valid & (code >= 0))
    rows = np.flatnonzero(usable[0])
    found = [rows[np.argsort(numbers[0][rows], kind="stable")]]
    for step, precedes in enumerate(before, 1):
        candidates = np.flatnonzero(usable[step])
        order = candidates[np.lexsort((numbers[step][candidates], keys[step][candidates]))]
        wanted = keys[step - 1][found[-1]]
        at = np.searchsorted(keys[step][order], wanted, side="left")
        if precedes:
            at -= 1
        inside = (at >= 0) & (at < len(order))
        chosen = order[np.where(inside, at, 0)] if len(order) else np.zeros(len(at), np.int64)
        if len(order):
            inside &= codes[step][chosen] == codes[step - 1][found[-1]]
        found = [one[inside] for one in found]
        found.append(chosen[inside])
    if within is not None:
        apart = np.abs(micros[-1][0][found[-1]] - micros[0][0][found[0]])
        near = apart <= within // timedelta(microseconds=1)
        found = [one[near] for one in found]
    return found


def _one_number(
    codes: Sequence[_Rows], micros: Sequence[tuple[_Rows, NDArray[np.bool_]]]
) -> tuple[int, Callable[[_Rows], _Rows]]:
    """Return how to pack link and instant into one number: the range per link, and the mapped instants."""
    known = [values[valid] for values, valid in micros if valid.any()]
    if not known:
        return 1, np.zeros_like
    least, most = min(int(one.min()) for one in known), max(int(one.max()) for one in known)
    width = most - least + 1
    if (max(int(one.max(initial=0)) for one in codes) + 1) * width < _MOST:
        # Those that are null are not used, whatever they come to.
        return width, lambda values: np.clip(values, least, most) - least
    # Far apart: by their ranks. NumPy's unique goes by hashes, which takes several times as long.
    ascending = np.sort(np.concatenate(known))
    instants = ascending[np.concatenate([[True], ascending[1:] != ascending[:-1]])]
    return len(instants) + 1, lambda values: np.searchsorted(instants, values).astype(np.int64)


def _codes(links: Sequence[pa.ChunkedArray]) -> list[_Rows]:
    """Return a number for every link, equal for equal links in all steps; -1 for null."""
    together = pa.chunked_array([chunk for one in links for chunk in one.chunks], links[0].type)
    encoded = together.combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = pa.concat_arrays(encoded.chunks) if encoded.num_chunks else pa.array([], links[0].type)
    numbers = (
        pc.fill_null(encoded.dictionary_encode().indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    return np.split(numbers, np.cumsum([len(one) for one in links])[:-1])


def _micros(times: pa.ChunkedArray) -> tuple[_Rows, NDArray[np.bool_]]:
    instants = times.cast(pa.timestamp("us")) if pa.types.is_date(times.type) else times
    numbers = pc.fill_null(instants.cast(pa.int64()), 0).to_numpy().astype(np.int64)
    return numbers, pc.is_valid(times).to_numpy().astype(bool)
