"""The values shared by all rows of a shard, as recorded in manifests.

A manifest records each value as the bytes of a little-endian Arrow scalar
(:mod:`weir.format.arrow_scalar`). A null is not recorded at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from weir.errors import ShardingError
from weir.format import arrow_scalar
from weir.format.index_details import ShardFieldSpec, ShardSpec
from weir.format.shard_manifest import ShardFieldValue
from weir.sharding.type_names import parse_type

__all__ = ["ShardValue", "ShardValues", "field_types"]


@dataclass(frozen=True, slots=True)
class ShardValue:
    """One field of a shard spec with its value.

    Parameters
    ----------
    field_id : str
        The field.
    data : bytes or None
        The value as a little-endian Arrow scalar; None for null.
    type : pyarrow.DataType
        The field's type.
    """

    field_id: str
    data: bytes | None
    type: pa.DataType = field(compare=False)

    @property
    def scalar(self) -> pa.Scalar:
        """The value as an Arrow scalar."""
        if self.data is None:
            return pa.scalar(None, self.type)
        return arrow_scalar.decode(self.data, self.type)


@dataclass(frozen=True, slots=True)
class ShardValues:
    """The value of every field of a shard spec, for one shard.

    Parameters
    ----------
    values : tuple of ShardValue
        In the order of the spec's fields.
    """

    values: tuple[ShardValue, ...]

    def to_manifest(self) -> tuple[ShardFieldValue, ...]:
        """Return what the shard's manifest records; nulls are left out."""
        return tuple(
            ShardFieldValue(value.field_id, value.data) for value in self.values if value.data is not None
        )

    @staticmethod
    def from_manifest(recorded: Sequence[ShardFieldValue], spec: ShardSpec) -> ShardValues | None:
        """Return the values of a shard of ``spec``, or None if its manifest does not record them.

        The released library records no values when it makes a shard, and nulls are not recorded either;
        a missing value is known only where the field can have no other. Such a shard may hold any rows.

        Parameters
        ----------
        recorded : sequence of ShardFieldValue
            What the manifest records.
        spec : ShardSpec
            The spec that the manifest names.

        Raises
        ------
        CorruptionError
            A value is not one of its type.
        """
        known = {value.field_id: value.value for value in recorded}
        values = []
        for one in spec.fields:
            try:
                data_type = parse_type(one.result_type)
            except ShardingError:
                return None
            data = known.get(one.field_id, _only_value(one))
            if data is None:
                return None
            arrow_scalar.decode(data, data_type)
            values.append(ShardValue(one.field_id, data, data_type))
        return ShardValues(tuple(values))

    def to_text(self) -> Mapping[str, str]:
        """Return the values by field, as text.

        Examples
        --------
        >>> import pyarrow as pa
        >>> dict(ShardValues((ShardValue("bucket", bytes([3, 0, 0, 0]), pa.int32()),)).to_text())
        {'bucket': '3'}
        """
        return {value.field_id: _text(value.scalar) for value in self.values}

    def __str__(self) -> str:
        return ", ".join(f"{field_id}={text}" for field_id, text in self.to_text().items())


def field_types(specs: Iterable[ShardSpec]) -> dict[str, pa.DataType]:
    """Return the type of every shard field, as its newest spec has it.

    A field whose type this version does not know is left out.

    Examples
    --------
    >>> field_types([ShardSpec(1, (ShardFieldSpec("bucket", (0,), "bucket", None, "int32"),))])
    {'bucket': DataType(int32)}
    """
    found = {}
    for spec in sorted(specs, key=lambda one: one.spec_id):
        for one in spec.fields:
            with suppress(ShardingError):
                found[one.field_id] = parse_type(one.result_type)
    return found


def _only_value(one: ShardFieldSpec) -> bytes | None:
    """Return the value of a field that can have only one, else None."""
    one_bucket = one.transform == "bucket" and one.parameters.get("num_buckets") == "1"
    return bytes(4) if one.transform == "unsharded" or one_bucket else None


def _text(scalar: pa.Scalar) -> str:
    if not scalar.is_valid:
        return "null"
    if pa.types.is_temporal(scalar.type):
        # Python has no nanoseconds, and its instants print with a zone database.
        return str(scalar.cast(pa.string()).as_py())
    value = scalar.as_py()
    return value.hex() if isinstance(value, bytes) else str(value)
