"""Matching the steps of a sequence: one pass over links and times in order, for all events at once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["matched"]

_Rows = NDArray[np.int64]


def matched(
    links: Sequence[pa.ChunkedArray],
    times: Sequence[pa.ChunkedArray],
    ids: Sequence[pa.ChunkedArray],
    before: Sequence[bool],
    within: timedelta | None,
) -> list[_Rows]:
    """Return which events of every step match, in the order of the ids of the first.

    Parameters
    ----------
    links, times, ids : sequence of ChunkedArray
        Of every step: what its events have in common with the others', their times and their ids.
    before : sequence of bool
        Of every step after the first, whether it precedes the one before it: then the latest strictly before,
        else the earliest not before.
    within : timedelta, optional
        How far the times of the first and the last step may be apart, inclusive.

    Returns
    -------
    list of int64 arrays
        For every step the rows of its events, match by match.
    """
    codes = _codes(links)
    micros = [_micros(one) for one in times]
    # Instants as ranks, so that link and instant fit one number.
    instants = np.unique(np.concatenate([values[valid] for values, valid in micros]))
    width = len(instants) + 1
    numbers = [pc.fill_null(one, -1).to_numpy().astype(np.int64) for one in ids]
    keys, usable = [], []
    for code, (values, valid) in zip(codes, micros, strict=True):
        keys.append(code * width + np.searchsorted(instants, values))
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


def _codes(links: Sequence[pa.ChunkedArray]) -> list[_Rows]:
    """Return a number for every link, the same for equal ones in all steps; -1 for null."""
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
