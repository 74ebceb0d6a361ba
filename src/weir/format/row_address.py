"""Row addresses of Lance datasets: the id of a fragment, and below it the place of a row in the fragment."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["FRAGMENT_BITS", "OFFSET_MASK", "RowAddresses", "addresses_of", "fragments_of", "offsets_of"]

RowAddresses = npt.NDArray[np.uint64]

FRAGMENT_BITS = 32
"""Where the id of its fragment begins in the address of a row."""

OFFSET_MASK = (1 << FRAGMENT_BITS) - 1
"""What is left of the address of a row without its fragment."""


def fragments_of(addresses: RowAddresses) -> npt.NDArray[np.uint64]:
    """Return the id of the fragment that each row is in."""
    return addresses >> np.uint64(FRAGMENT_BITS)


def offsets_of(addresses: RowAddresses) -> npt.NDArray[np.int64]:
    """Return the place of each row in its fragment."""
    return (addresses & np.uint64(OFFSET_MASK)).astype(np.int64)


def addresses_of(fragments: npt.NDArray[np.uint64], offsets: npt.NDArray[np.int64]) -> RowAddresses:
    """Return the addresses of rows by their fragments, and their places in these."""
    return (fragments << np.uint64(FRAGMENT_BITS)) | offsets.astype(np.uint64)
