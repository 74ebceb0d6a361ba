"""Validation of merge engines: whether the columns of a new table permit one."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from weir.errors import OptionError, SchemaError
from weir.format.distinct_sketch import SKETCH, library
from weir.format.merge_engine import EngineKind, Function, MergeEngine
from weir.format.wal_entry import TOMBSTONE

__all__ = ["chosen_engine", "with_sketches"]

_WIDE = (pa.int64(), pa.uint64(), pa.float64())
_SHORT_NAMES = {
    "last_row": None,
    "first_row": MergeEngine.first_row(),
    "partial_update": MergeEngine.partial_update(),
}


def chosen_engine(
    engine: MergeEngine | str | None, sequence_by: str | None, schema: pa.Schema, primary_key: tuple[str, ...]
) -> MergeEngine | None:
    """Return the engine that is asked for; None for the default, the last row of a key.

    Parameters
    ----------
    engine : MergeEngine or str, optional
        An engine, or the name of one without parameters: ``"last_row"``, ``"first_row"``,
        ``"partial_update"``.
    sequence_by : str, optional
        The column whose highest value wins.
    schema : Schema
        The columns of the table.
    primary_key : tuple of str
        The columns of the key.

    Raises
    ------
    OptionError
        If there is no such engine, or it cannot have a sequence.
    SchemaError
        If it names an unknown column, or one of an unsuitable type.
    """
    if isinstance(engine, str):
        if engine not in _SHORT_NAMES:
            raise OptionError(
                f"there is no merge engine {engine!r}",
                where="merge_engine",
                hint=f"Pass {', '.join(map(repr, _SHORT_NAMES))} or weir.MergeEngine.aggregation(...)",
            )
        engine = _SHORT_NAMES[engine]
    if engine is not None and not isinstance(engine, MergeEngine):
        raise OptionError(
            f"a merge engine is expected, got {engine!r:.80}",
            where="merge_engine",
            hint="weir.MergeEngine makes one",
        )
    if sequence_by is not None:
        if engine is not None and engine.kind is not EngineKind.LAST_ROW:
            raise OptionError(
                f"sequence_by says which row of a key wins, but with {engine.kind} no row wins as a whole",
                where="sequence_by",
                hint="Leave it out; weir.MergeEngine.partial_update takes sequence groups",
            )
        engine = replace(engine or MergeEngine(EngineKind.LAST_ROW), sequence_by=sequence_by)
    if engine is None or (engine.kind is EngineKind.LAST_ROW and engine.sequence_by is None):
        return None
    _check_columns(engine, schema, primary_key)
    return engine


def _check_columns(engine: MergeEngine, schema: pa.Schema, primary_key: tuple[str, ...]) -> None:
    named = engine.columns
    for name in named:
        if name not in schema.names:
            raise SchemaError(
                f"the merge engine names a column {name!r} that does not exist",
                where=name,
                hint=f"The columns are {', '.join(schema.names)}",
            )
        if name in primary_key or name == TOMBSTONE:
            raise SchemaError(
                f"the column {name!r} is part of the key, and the same in every version of a row", where=name
            )
        if named.count(name) > 1:
            raise SchemaError(f"the merge engine names the column {name!r} twice", where=name)
    sequences = [sequence for sequence, _ in engine.groups]
    sequences += [engine.sequence_by] if engine.sequence_by else []
    for name in sequences:
        if not _is_ordered(schema.field(name).type):
            raise _unfit(schema.field(name), "a sequence", "a number, a time or text")
    for name, function in engine.functions:
        field = schema.field(name)
        if function in (Function.MIN, Function.MAX) and not _is_ordered(field.type):
            raise _unfit(field, function, "a number, a time or text")
        if function is Function.SUM and field.type not in _WIDE:
            raise _unfit(field, function, "int64, uint64 or float64, which have room for a sum")
        if function is Function.COUNT and field.type not in _WIDE[:2]:
            raise _unfit(field, function, "int64 or uint64")
        if function is Function.DISTINCT_SKETCH:
            if not (pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)):
                raise _unfit(field, function, "binary")
            library()
        if function in (Function.LIST_APPEND, Function.DISTINCT_UNION) and not _is_list(field.type):
            raise _unfit(field, function, "a list")
        if function is Function.DISTINCT_UNION and pa.types.is_nested(field.type.value_type):
            raise _unfit(field, function, "a list of values that are not nested")


def with_sketches(schema: pa.Schema, engine: MergeEngine) -> pa.Schema:
    """Return a schema that says which of its columns hold sketches, so that nothing else is written there."""
    for name, function in engine.functions:
        if function is Function.DISTINCT_SKETCH:
            field = schema.field(name)
            at = schema.get_field_index(name)
            schema = schema.set(at, field.with_metadata({**(field.metadata or {}), SKETCH: b"theta"}))
    return schema


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_ordered(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_float32(kind)
        or pa.types.is_float64(kind)
        or pa.types.is_decimal128(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_time(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
    )


def _unfit(field: pa.Field, what: str, wanted: str) -> SchemaError:
    return SchemaError(
        f"the column {field.name!r} of type {field.type} cannot serve as {what}: it must be {wanted}",
        where=field.name,
    )
