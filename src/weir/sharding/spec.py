"""Shard specs: creation from user input, parsing, numbering, and compatibility with the library.

Lance MemWAL spec, section "Shard Spec". Field ids, result types and parameters are those the released library
writes for the transforms it knows (``initialize_mem_wal``): the one field of a ``bucket``, ``identity`` or
``unsharded`` spec is called ``bucket``. Weir adds parameters with the prefix ``weir:``, which the library
ignores.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from weir.errors import ShardingError
from weir.format.field_births import Births
from weir.format.index_details import IndexDetails, ShardFieldSpec, ShardSpec
from weir.format.recorded_columns import SOURCE_BIRTHS, births_noted
from weir.format.shard_manifest import ShardManifest
from weir.sharding.bound import IMMUTABLE, SOURCE_TYPES, recorded_types, transform_of
from weir.sharding.expression import Expression
from weir.sharding.shard_by import ShardBy
from weir.sharding.transforms import Unsharded
from weir.sharding.type_names import type_name

__all__ = ["build_spec", "describe_spec", "library_note", "library_supports", "next_spec_id", "read_spec"]

_LIBRARY_FIELD_ID = "bucket"
_LIBRARY_TRANSFORMS = frozenset({"bucket", "identity", "unsharded"})
_LIBRARY_IDENTITY = frozenset(
    {
        *("boolean", "utf8", "large_utf8"),
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    }
)
_LIBRARY_BUCKET = _LIBRARY_IDENTITY | {"float32", "float64", "date32"}
_LIBRARY_BUCKET_KINDS = frozenset({"timestamp", "time32", "time64"})


def build_spec(
    shard_by: ShardBy | Sequence[ShardBy],
    schema: pa.Schema,
    primary_key: Sequence[str],
    field_ids: Mapping[str, int],
    *,
    spec_id: int = 1,
    births: Births | None = None,
) -> ShardSpec:
    """Make a shard spec.

    Parameters
    ----------
    shard_by : ShardBy or sequence of ShardBy
        One shard value or several.
    schema : pyarrow.Schema
        The table's columns.
    primary_key : sequence of str
        Its primary-key columns.
    field_ids : mapping of str to int
        Lance field id of every column.
    spec_id : int, default 1
        Id of the spec; see :func:`next_spec_id`.
    births : mapping of int to str or None, optional
        Births of the columns, by field id. Default: none is recorded.

    Raises
    ------
    SchemaError
        There is no such column.
    ShardingError
        A transform does not fit its columns, rows could move between shards, two values have the same
        field id, or ``unsharded`` is combined with others.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from weir.sharding.shard_by import bucket
    >>> spec = build_spec(bucket("id", 8), pa.schema([("id", pa.int64())]), ["id"], {"id": 0})
    >>> spec.fields[0].field_id, spec.fields[0].transform, dict(spec.fields[0].parameters)
    ('bucket', 'bucket', {'num_buckets': '8', 'weir:source_types': 'int64'})
    """
    if spec_id < 1:
        raise ShardingError(f"a shard spec id is 1 or more, not {spec_id}")
    wanted = (shard_by,) if isinstance(shard_by, ShardBy) else tuple(shard_by)
    if not wanted:
        raise ShardingError("nothing to shard by", hint="For one shard, use weir.unsharded()")
    for one in wanted:
        if not isinstance(one, ShardBy):
            raise ShardingError(
                f"shard_by must be made with weir.bucket(), weir.identity() and so on, not {one!r}"
            )
    if len(wanted) > 1 and any(isinstance(one.transform, Unsharded) for one in wanted):
        raise ShardingError("unsharded() cannot be combined with other rules", hint="Leave it out")
    alone = len(wanted) == 1
    fields = tuple(
        _build_field(one, schema, primary_key, field_ids, births or {}, alone=alone) for one in wanted
    )
    names = [one.field_id for one in fields]
    for name in names:
        if names.count(name) > 1:
            raise ShardingError(
                f"two shard values are called {name!r}", hint="Give one of them another field_id="
            )
    return ShardSpec(spec_id, fields)


def read_spec(spec: ShardSpec, field_ids: Mapping[str, int]) -> tuple[ShardBy, ...]:
    """Return what a shard spec was made from.

    A column the table no longer has is called ``<field 7>``, by its Lance field id.

    Raises
    ------
    ShardingError
        The spec has a transform that is not known here.
    """
    names = {field_id: name for name, field_id in field_ids.items()}
    return tuple(
        ShardBy(
            transform_of(one),
            tuple(names.get(source_id, f"<field {source_id}>") for source_id in one.source_ids),
            immutable=one.parameters.get(IMMUTABLE) == "true",
            field_id=one.field_id,
        )
        for one in spec.fields
    )


def describe_spec(spec: ShardSpec, field_ids: Mapping[str, int]) -> str:
    """Return a shard spec as text: ``year(ts), bucket(id, 4)``.

    Transforms that are not known here are named as the spec names them.
    """
    if not spec.fields:
        return "by hand"
    parts: list[str] = []
    for one in spec.fields:
        try:
            parts.extend(str(shard_by) for shard_by in read_spec(ShardSpec(spec.spec_id, (one,)), field_ids))
        except ShardingError:
            parts.append(f"{one.transform or one.expression}(...)")
    return ", ".join(parts)


def library_note(spec: ShardSpec) -> str:
    """Return why the released library cannot route rows by this spec, or ``""`` if it can.

    pylance 14 computes ``bucket``, ``identity`` and ``unsharded`` values of the column types that its
    ``initialize_mem_wal`` accepts. It opens a writer on a shard of any spec, by shard id, and appends
    whatever rows it is given; with a spec it cannot compute, the right shard is for the caller to know.
    """
    for one in spec.fields:
        if one.expression is not None:
            return f"it does not evaluate custom expressions ({one.expression!r})"
        if one.transform not in _LIBRARY_TRANSFORMS:
            return f"it does not know the transform {one.transform!r}"
        types = recorded_types(one)
        source = type_name(types[0]) if types else None
        if one.transform == "identity" and (source or one.result_type) not in _LIBRARY_IDENTITY:
            return f"it takes no {source or one.result_type} column for the transform 'identity'"
        if one.transform == "bucket" and source is not None:
            kind = source.partition(":")[0]
            if source not in _LIBRARY_BUCKET and kind not in _LIBRARY_BUCKET_KINDS:
                return f"it has no hash for a {source} column"
    return ""


def library_supports(spec: ShardSpec) -> bool:
    """Whether the released library can route rows by this spec. See :func:`library_note`."""
    return not library_note(spec)


def next_spec_id(details: IndexDetails, manifests: Iterable[ShardManifest] = ()) -> int:
    """Return an id no shard spec of the table has ever had.

    Ids in use are seen in the details, those of specs that something else has removed in the manifests of
    the shards that were made under them.

    Parameters
    ----------
    details : IndexDetails
        The table's index details.
    manifests : iterable of ShardManifest
        Manifests of all shards.
    """
    used = [spec.spec_id for spec in details.shard_specs]
    used += [manifest.shard_spec_id for manifest in manifests]
    return max(used, default=0) + 1


def _build_field(
    one: ShardBy,
    schema: pa.Schema,
    primary_key: Sequence[str],
    field_ids: Mapping[str, int],
    births: Births,
    *,
    alone: bool,
) -> ShardFieldSpec:
    result = one.validate(schema, primary_key)
    transform = one.transform
    parameters = dict(transform.parameters)
    if one.columns:
        parameters[SOURCE_TYPES] = ";".join(type_name(kind) for kind in one.source_types(schema))
    sources = tuple(field_ids[column] for column in one.columns)
    noted = births_noted(sources, births)
    if noted:
        parameters[SOURCE_BIRTHS] = json.dumps(noted, separators=(",", ":"))
    if one.immutable:
        parameters[IMMUTABLE] = "true"
    name = one.field_id
    if name is None:
        like_the_library = alone and transform.name in _LIBRARY_TRANSFORMS
        name = (
            _LIBRARY_FIELD_ID
            if like_the_library
            else "_".join((*one.columns, transform.name or "expression"))
        )
    return ShardFieldSpec(
        field_id=name,
        source_ids=sources,
        transform=transform.name,
        expression=transform.sql if isinstance(transform, Expression) else None,
        result_type=type_name(result),
        parameters=parameters,
    )
