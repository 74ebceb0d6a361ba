"""Which columns hold vectors."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["is_vector"]


def is_vector(kind: pa.DataType) -> bool:
    """Whether a column of this type can be searched by vector.

    Examples
    --------
    >>> import pyarrow as pa
    >>> is_vector(pa.list_(pa.float32(), 8)), is_vector(pa.list_(pa.float32()))
    (True, False)
    """
    if not pa.types.is_fixed_size_list(kind):
        return False
    return bool(pa.types.is_floating(kind.value_type) or pa.types.is_uint8(kind.value_type))
