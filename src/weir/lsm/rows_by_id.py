"""Rows of a dataset by their ids."""

from __future__ import annotations

from collections.abc import Sequence

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["take_row_ids"]

_FRAGMENT_BITS = 32
"""Where the id of its fragment begins in the address of a row."""
_OFFSET_MASK = 2**_FRAGMENT_BITS - 1


def take_row_ids(
    dataset: lance.LanceDataset, row_ids: npt.NDArray[np.int64], columns: Sequence[str]
) -> pa.Table:
    """Return some rows of a dataset by their ids, in the order asked for, each as often as asked for."""
    if (row_ids[1:] > row_ids[:-1]).all():
        return _ascending(dataset, row_ids, columns)
    order = np.argsort(row_ids)
    ascending = row_ids[order]
    if (ascending[1:] > ascending[:-1]).all():
        distinct, place = ascending, np.argsort(order)
    else:
        distinct, place = np.unique(row_ids, return_inverse=True)
    return _ascending(dataset, distinct, columns).take(pa.array(place))


def _ascending(
    dataset: lance.LanceDataset, row_ids: npt.NDArray[np.int64], columns: Sequence[str]
) -> pa.Table:
    ids: list[int] = row_ids.tolist()
    if ids and ids[0] >> _FRAGMENT_BITS == ids[-1] >> _FRAGMENT_BITS and not dataset.has_stable_row_ids:
        fragment = dataset.get_fragment(ids[0] >> _FRAGMENT_BITS)
        if fragment is not None and fragment.metadata.deletion_file is None:
            # By their places in it a fragment finds a few rows in half the time that a dataset takes.
            return fragment.take([one & _OFFSET_MASK for one in ids], columns=list(columns))
    return dataset._take_rows(ids, columns=list(columns))
