"""The shard transforms of the spec: from the source columns of a row to one shard value.

A transform is a small immutable object that knows nothing of tables or column names. Lance MemWAL spec,
section "Shard Transform":

============  ===========================================  =========================
transform     shard value                                  type
============  ===========================================  =========================
identity      the column                                   the column's
year ... hour ``date_part('year', col0)``, read in UTC     int32
bucket        ``(murmur3(col0) & 0x7fffffff) % N``         int32
multi_bucket  the same over several columns                int32
truncate      the first W characters, or ``c - (c % W)``   the column's
unsharded     0                                            int32
============  ===========================================  =========================

Nulls: the value is null where the column is, with two exceptions. ``bucket`` of null is 0, as in the released
library (the spec says null); ``multi_bucket`` skips nulls and is null only if all columns are. Floats: every
NaN is one value, and -0.0 is 0.0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import ShardingError
from weir.sharding.arrow_values import fixed_width_values, valid_mask, with_nulls
from weir.sharding.date_parts import PARTS, date_part, has_date_parts, instants_with, parts_between
from weir.sharding.library_buckets import buckets_of_text
from weir.sharding.murmur3 import buckets, can_hash, murmur3, murmur3_multi
from weir.sharding.type_names import type_name
from weir.sharding.value_set import ONLY_NULL, Ordinal, ValueSet

__all__ = ["MAX_BUCKETS", "Bucket", "DatePart", "Identity", "MultiBucket", "Transform", "Truncate"]
__all__ += ["Unsharded", "one_zero_one_nan", "transform_named"]

MAX_BUCKETS = 1024
"""The most buckets the released library allows a bucket transform."""

_INT32 = pa.int32()


class Transform(ABC):
    """One shard value as a function of source columns."""

    __slots__ = ()

    name: ClassVar[str | None]
    """Name in the shard spec; None for custom expressions."""

    hashes: ClassVar[bool] = False
    """Whether :meth:`evaluate` takes promoted numbers as they are (see :mod:`weir.sharding.promotion`)."""

    @property
    def columns_wanted(self) -> tuple[int, int]:
        """The least and the greatest number of source columns."""
        return 1, 1

    @property
    def parameters(self) -> Mapping[str, str]:
        """The parameters as the shard spec records them."""
        return {}

    @abstractmethod
    def result_type(self, source_types: Sequence[pa.DataType]) -> pa.DataType:
        """Return the type of the shard value.

        Raises
        ------
        ShardingError
            The transform cannot take columns of these types.
        """

    @abstractmethod
    def evaluate(self, columns: Sequence[pa.Array], source_types: Sequence[pa.DataType]) -> pa.Array:
        """Return the shard value of every row.

        Parameters
        ----------
        columns : sequence of pyarrow.Array
            The source columns, of the source types (or promoted from them, if :attr:`hashes`).
        source_types : sequence of pyarrow.DataType
            The types the columns had when the shard spec was made.
        """

    def preimage(self, value: Ordinal | None, source_type: pa.DataType) -> ValueSet | None:
        """Return the source values whose shard value is ``value``; None if they are not an interval."""
        return None

    def image(self, first: int, last: int, source_type: pa.DataType) -> frozenset[int] | None:
        """Return the shard values of the source ordinals from ``first`` to ``last``; None if too many."""
        return None

    def describe(self, columns: Sequence[str]) -> str:
        """Return the call that makes the transform, as text."""
        arguments = [*columns, *self.parameters.values()]
        return f"{self.name}({', '.join(arguments)})"

    def _reject(self, source_type: pa.DataType, wanted: str) -> ShardingError:
        return ShardingError(
            f"transform {self.name!r} cannot take a column of type {source_type}",
            hint=f"It takes {wanted}",
        )


@dataclass(frozen=True, slots=True)
class Identity(Transform):
    """The column itself: one shard for each value."""

    name: ClassVar[str] = "identity"

    def result_type(self, source_types: Sequence[pa.DataType]) -> pa.DataType:
        """Return the type of the source column."""
        type_name(source_types[0])
        return source_types[0]

    def evaluate(self, columns: Sequence[pa.Array], source_types: Sequence[pa.DataType]) -> pa.Array:
        """Return the column."""
        return one_zero_one_nan(columns[0])

    def preimage(self, value: Ordinal | None, source_type: pa.DataType) -> ValueSet | None:
        """Return the value itself."""
        return ONLY_NULL if value is None else ValueSet.of([value])


@dataclass(frozen=True, slots=True)
class Unsharded(Transform):
    """One shard for all rows."""

    name: ClassVar[str] = "unsharded"

    @property
    def columns_wanted(self) -> tuple[int, int]:
        """No source column."""
        return 0, 0

    def result_type(self, source_types: Sequence[pa.DataType]) -> pa.DataType:
        """Return int32."""
        return _INT32

    def evaluate(self, columns: Sequence[pa.Array], source_types: Sequence[pa.DataType]) -> pa.Array:
        """Return one zero; the number of rows is not known here, and does not matter."""
        return pa.array([0], _INT32)


@dataclass(frozen=True, slots=True)
class DatePart(Transform):
    """The year, month, day of the month or hour of the day of a date or timestamp, in UTC.

    Parameters
    ----------
    part : {"year", "month", "day", "hour"}
        Which part.
    """

    part: str

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the transform: the part."""
        return self.part

    def result_type(self, source_types: Sequence[pa.DataType]) -> pa.DataType:
        """Return int32; the source must be a date or a timestamp."""
        if not has_date_parts(source_types[0]):
            raise self._reject(source_types[0], "date32, date64 or timestamp")
        return _INT32

    def evaluate(self, columns: Sequence[pa.Array], source_types: Sequence[pa.DataType]) -> pa.Array:
        """Return the part of every row."""
        return date_part(self.part, columns[0])

    def preimage(self, value: Ordinal | None, source_type: pa.DataType) -> ValueSet | None:
        """Return the instants of a year; the other parts come again and again."""
        if self.part != "year" or not isinstance(value, int):
            return None
        first, last = instants_with({"year": value}, source_type)
        return ValueSet(lower=first, upper=last)

    def image(self, first: int, last: int, source_type: pa.DataType) -> frozenset[int] | None:
        """Return the parts that occur between two instants."""
        return parts_between(self.part, first, last, source_type)


@dataclass(frozen=True, slots=True)
class Bucket(Transform):
    """A hash of one column, spread over a number of buckets.

    Parameters
    ----------
    num_buckets : int
        Number of buckets, 1 to 1024.
    """

    num_buckets: int

    name: ClassVar[str] = "bucket"
    hashes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_buckets(self.num_buckets)

    @property
    def parameters(self) -> Mapping[str, str]:
        """``num_buckets``."""
        return {"num_buckets": str(self.num_buckets)}

    def result_type(self, source_types: Sequence[pa.DataType]) -> pa.DataType:
        """Return int32; the source must have a hash."""
        if not can_hash(source_types[0]):
            raise self._reject(source_types[0], "numbers, text, binary, dates or times")
        return _INT32

    def evaluate(self, columns: Sequence[pa.Array], source_types: Sequence[pa.DataType]) -> pa.Array:
        """Return the bucket of every row; 0 where the column is null."""
        column = columns[0]
        if len(column) > 1 and (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            return buckets_of_text(column, self.num_buckets)
        return pa.array(buckets(murmur3(columns[0], source_type=source_types[0]), self.num_buckets))


@dataclass(frozen=True, slots=True)
class MultiBucket(Transform):
    """A hash of several columns together, spread over a number of buckets.

    Parameters
    ----------
    num_buckets : int
        Number of buckets, 1 to 1024.
    """

    num_buckets: int

    name: ClassVar[str] = "multi_bucket"
    hashes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_buckets(self.num_buckets)

    @property
    def columns_wanted(self) -> tuple[int, int]:
        """One column or more."""
        return 1, 1_000

    @property
    def parameters(self) -> Mapping[str, str]:
        """``num_buckets``."""
        return {"num_buckets": str(self.num_buckets)}

    def result_type(self, source_types: Sequence[pa.DataType]) -> pa.DataType:
        """Return int32; every source must have a hash."""
        for source_type in source_types:
            if not can_hash(source_type):
                raise self._reject(source_type, "numbers, text, binary, dates or times")
        return _INT32

    def evaluate(self, columns: Sequence[pa.Array], source_types: Sequence[pa.DataType]) -> pa.Array:
        """Return the bucket of every row; null where all columns are."""
        hashes, valid = murmur3_multi(columns, source_types)
        return with_nulls(buckets(hashes, self.num_buckets), valid)


@dataclass(frozen=True, slots=True)
class Truncate(Transform):
    """The first characters of a text, or a number rounded towards zero to a multiple of the width.

    Parameters
    ----------
    width : int
        Number of characters (Unicode code points, as ``left`` counts them), or the multiple; at least 1.
    """

    width: int

    name: ClassVar[str] = "truncate"

    def __post_init__(self) -> None:
        if not 1 <= self.width < 2**63:
            raise ShardingError(f"truncate needs a width of at least 1, not {self.width}")

    @property
    def parameters(self) -> Mapping[str, str]:
        """``width``."""
        return {"width": str(self.width)}

    def result_type(self, source_types: Sequence[pa.DataType]) -> pa.DataType:
        """Return the type of the source column, which must be text or a number."""
        kind = source_types[0]
        if _is_text(kind) or pa.types.is_integer(kind) or _is_decimal(kind) or _is_float(kind):
            return kind
        raise self._reject(kind, "text, integers, decimals, float32 or float64")

    def evaluate(self, columns: Sequence[pa.Array], source_types: Sequence[pa.DataType]) -> pa.Array:
        """Return the truncated value of every row."""
        column, kind = columns[0], source_types[0]
        if _is_text(kind):
            return pc.utf8_slice_codeunits(column, 0, min(self.width, 2**31 - 1))
        if _is_decimal(kind):
            return self._truncate_decimals(column)
        dtype = np.dtype(kind.to_pandas_dtype())
        values = fixed_width_values(column, dtype)
        if dtype.kind in "iu" and self.width > np.iinfo(dtype).max:
            # Only the lowest value can be a multiple: -128 of 128.
            lowest = np.iinfo(dtype).min
            truncated = np.where((values == lowest) & (-int(lowest) == self.width), values, dtype.type(0))
        else:
            with np.errstate(invalid="ignore"):
                truncated = values - np.fmod(values, dtype.type(self.width))
        return one_zero_one_nan(with_nulls(truncated, valid_mask(column)))

    def _truncate_decimals(self, column: pa.Array) -> pa.Array:
        try:
            multiple = pa.scalar(Decimal(self.width), column.type)
        except pa.ArrowInvalid:
            # The width has more digits than the column: every value is nearer to zero than it.
            zero = pa.scalar(Decimal(0), column.type)
            return pc.if_else(column.is_valid(), zero, pa.scalar(None, column.type))
        return pc.round_to_multiple(column, multiple, "towards_zero")

    def preimage(self, value: Ordinal | None, source_type: pa.DataType) -> ValueSet | None:
        """Return the texts that begin so, or the numbers that round so."""
        if value is None:
            return ONLY_NULL
        if isinstance(value, bytes):
            if len(value.decode()) < self.width:
                return ValueSet.of([value])
            # No UTF-8 byte is 0xff, so the last one has a successor.
            return ValueSet(lower=value, upper=value[:-1] + bytes([value[-1] + 1]))
        if isinstance(value, float):
            if value != value:
                return None
            # Room for the rounding of the subtraction, in single precision.
            reach = self.width * (1 + 1e-6) + abs(value) * 1e-6
            return ValueSet(lower=value - reach, upper=value + reach)
        step: Any = self.width if isinstance(value, int) else Decimal(self.width)
        last = step - 1 if isinstance(value, int) else step
        return ValueSet(
            lower=value - last if value <= 0 else value, upper=value + last if value >= 0 else value
        )


def transform_named(name: str, parameters: Mapping[str, str]) -> Transform:
    """Return the transform a shard spec names.

    Raises
    ------
    ShardingError
        The name is unknown, or a parameter is missing or malformed.

    Examples
    --------
    >>> transform_named("bucket", {"num_buckets": "8"})
    Bucket(num_buckets=8)
    """
    if name == "identity":
        return Identity()
    if name == "unsharded":
        return Unsharded()
    if name in PARTS:
        return DatePart(name)
    if name == "bucket":
        return Bucket(_integer(name, parameters, "num_buckets"))
    if name == "multi_bucket":
        return MultiBucket(_integer(name, parameters, "num_buckets"))
    if name == "truncate":
        return Truncate(_integer(name, parameters, "width"))
    known = ", ".join(("identity", *PARTS, "bucket", "multi_bucket", "truncate", "unsharded"))
    raise ShardingError(f"unknown shard transform {name!r}", hint=f"Known are {known}")


def _integer(name: str, parameters: Mapping[str, str], key: str) -> int:
    text = parameters.get(key)
    if text is None:
        raise ShardingError(f"transform {name!r} lacks its parameter {key!r}")
    try:
        return int(text)
    except ValueError:
        raise ShardingError(f"parameter {key!r} of transform {name!r} is {text!r}, not an integer") from None


def _check_buckets(num_buckets: int) -> None:
    if not 1 <= num_buckets <= MAX_BUCKETS:
        raise ShardingError(
            f"the number of buckets must be 1 to {MAX_BUCKETS}, not {num_buckets}",
            hint="Each bucket is a shard with its own writer and WAL; start with one per core",
        )


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _is_float(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_float32(data_type) or pa.types.is_float64(data_type))


def _is_decimal(data_type: pa.DataType) -> bool:
    # Lance has no decimals of 32 or 64 bits.
    return bool(pa.types.is_decimal128(data_type) or pa.types.is_decimal256(data_type))


def one_zero_one_nan(column: pa.Array) -> pa.Array:
    """Return floats with -0.0 as 0.0 and every NaN as the same NaN; other columns as they are."""
    if not pa.types.is_floating(column.type):
        return column
    dtype = np.dtype(column.type.to_pandas_dtype())
    values = fixed_width_values(column, dtype) + dtype.type(0)
    values[np.isnan(values)] = np.nan
    return with_nulls(values, valid_mask(column))
