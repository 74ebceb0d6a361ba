"""Altering the columns of the base table, in one atomic version.

Columns are identified by their field ids, in the base table, in generations and in the log. So a renamed
column keeps its values wherever they are, a column that is dropped and added again is a different one, and
logs and generations stay as they are: nothing has to be merged first.

The new version is built by the library in a scratch directory and published with one put-if-absent, as every
change of the MemWAL index is (:mod:`weir.base.publish`). It holds several of the library's operations: the
details of the MemWAL index, which say which ids have been taken, then the schema as a ``Project``, and a
``Merge`` where data was rewritten. Rows prepared for the previous version can still be committed after a
``Project``; after a ``Merge`` they are refused and have to be prepared again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import lance
import pyarrow as pa
from lance.dataset import LanceOperation
from lance.schema import LanceSchema

from weir.base.alteration import Alteration, AlteredSchema
from weir.base.column_marks import births_to_mark
from weir.base.details_commit import wait_for_turn
from weir.base.library_errors import LIBRARY_ERRORS, storage_failure
from weir.base.manifest import TableManifest
from weir.base.newest import saw
from weir.base.property_changes import PropertyChanges
from weir.base.publish import publish_schema
from weir.base.recast import Recast
from weir.base.schema import table_schema
from weir.base.scratch import scratch_directory
from weir.base.stored_types import refuse_unheld
from weir.base.table import BaseTable
from weir.engine import failpoint
from weir.engine.logs import get_logger
from weir.errors import ConflictError, ObjectNotFoundError, SchemaError, WeirError
from weir.format.field_births import BeforeMarks, Births, birth_at
from weir.format.index_details import INDEX_NAME, IndexDetails
from weir.format.table_fields import NO_PARENT, TableField, decode_fields, encode_fields, marks_for, paths
from weir.format.table_manifest import decode_index_section, ids_in_every_fragment

__all__ = ["LAST_FIELD_ID", "alter_base_table"]

LAST_FIELD_ID = "weir.last_field_id"
"""Key among the writer defaults of the MemWAL index: the highest field id that a column has ever had.

The library reuses the id of a dropped column for the next one added. Rows in a log or a generation that still
have the dropped column would give their values to the new one.
"""

_MAX_ATTEMPTS = 64
_log = get_logger(__name__)


def alter_base_table(
    base: BaseTable, alteration: Alteration, properties: PropertyChanges | None = None
) -> BaseTable:
    """Add, drop, rename and widen columns of a table, and change its properties, in one version.

    Parameters
    ----------
    base : BaseTable
        The table at any version.
    alteration : Alteration
        What to change of the columns.
    properties : PropertyChanges, optional
        What to change besides, by the names that columns have afterwards. Default: nothing.

    Returns
    -------
    BaseTable
        The newest version of the table, with the change in it.

    Raises
    ------
    SchemaError
        The columns cannot be altered so; nothing was changed.
    OptionError
        The properties cannot be changed so; nothing was changed.
    ConflictError
        Others committed during every attempt; nothing was changed.
    StorageError
        The store failed.
    """
    properties = properties or PropertyChanges()
    recast: Recast | None = None
    recast_of: Sequence[TableField] = ()
    may_be_published = False
    try:
        for attempt in range(_MAX_ATTEMPTS):
            wait_for_turn(attempt)
            base = base.latest_to_change()
            try:
                manifest = base.manifest()
            except ObjectNotFoundError:
                continue  # cleaned up, so there is a newer version
            fields = decode_fields(manifest.data, where=manifest.where)
            altered = alteration.applied(base.schema, _needed(base, manifest, fields, properties))
            refuse_unheld(base.dataset, altered.schema, altered.origins)
            _refuse_hollow(manifest, fields, altered)
            append = base.append_only
            required = None if append is None else append.unique
            schema = table_schema(altered.schema, base.primary_key, required=required)
            # Data files still hold columns that plain Lance has dropped, under ids that no column has now.
            last_id = max(
                _last_field_id(base.details), base.dataset.max_field_id, *(one.id for one in fields)
            )
            new_fields = _renumbered(_library_fields(schema), fields, altered.origins, last_id)
            births = _births(new_fields, base, manifest.version + 1)
            new_fields = _born(new_fields, births, base.before_marks)
            details = _with_last_id(base.details, max(last_id, *(one.id for one in new_fields)))
            ids = {one.name: one.id for one in new_fields if one.parent_id == NO_PARENT}
            details = properties.applied(base, details, altered.schema, ids, births)
            if recast is not None and recast_of != fields:
                # Others have altered columns since: a name may be another column's.
                recast.discard()
                recast = None
            if altered.widened and recast is None:
                recast, recast_of = _recast(base, alteration, fields), fields
            operations = _operations(base, schema, new_fields, recast)
            failpoint.reach("alter.before_publish")
            may_be_published = True
            version = publish_schema(base.store, manifest, details, operations)
            if version is not None:
                failpoint.reach("alter.after_publish")
                _log.info("table.altered", where=base.uri, version=version, columns=",".join(schema.names))
                altered_base = base.latest()
                saw(altered_base)
                return altered_base
            may_be_published = False
        raise ConflictError(
            f"the table changed during each of {_MAX_ATTEMPTS} attempts to alter it",
            where=base.uri,
            hint="Run fewer services on the table at once",
        )
    except BaseException:
        # What fails while it is published may have been, or may be yet: then its files are the table's.
        if recast is not None and not may_be_published:
            with suppress(WeirError):
                recast.discard()
        raise


def _needed(
    base: BaseTable, manifest: TableManifest, fields: Sequence[TableField], properties: PropertyChanges
) -> Mapping[str, str]:
    """Return why columns have to stay as they are, by path."""
    by_id = {field.id: path for path, field in paths(fields).items()}
    needed = {}
    for index in decode_index_section(manifest.data, where=manifest.where):
        if index.name == INDEX_NAME:
            continue
        for source in index.field_ids:
            if source in by_id:
                needed[by_id[source]] = f"the index {index.name!r} is on it; drop the index first"
    for spec in base.details.shard_specs:
        born_later = set(base.field_ids.values()).difference(base.columns_of(spec).values())
        for item in spec.fields:
            for source in item.source_ids:
                if source in by_id and source not in born_later:
                    needed[by_id[source]] = "the rule by which rows are split into shards is computed from it"
    for name in () if base.merge_engine is None else base.merge_engine.columns:
        needed[name] = "the merge engine of the table goes by it"
    if base.append_only is not None:
        append = base.append_only
        for name in append.unique if properties.changes_order else append.columns:
            needed[name] = "rows are sorted by it, or it is promised to be unique"
    if base.expiry is not None and not properties.changes_expiry:
        needed[base.expiry.column] = "rows expire by it"
    for name in base.primary_key:
        needed[name] = "it is part of the primary key"
    return needed


def _refuse_hollow(manifest: TableManifest, fields: Sequence[TableField], altered: AlteredSchema) -> None:
    """Refuse to leave a struct without a field that all data files have: Lance would show it as null."""
    stored = ids_in_every_fragment(manifest.data, where=manifest.where)
    if not stored:
        return
    before = paths(fields)
    kept = set(altered.origins.values())
    lost = {path.rpartition(".")[0] for path in before.keys() - kept}
    for path in sorted(lost & kept):
        parts = [one for one in kept if one.startswith(f"{path}.")]
        if not any(before[one].id in stored for one in parts):
            raise SchemaError(
                f"column {path!r} would have no field left that all its rows were written with, and Lance "
                "would show the struct itself as null in them",
                where=path,
                hint="Keep one of the fields, or drop the whole column and add another one",
            )


def _last_field_id(details: IndexDetails) -> int:
    recorded = details.writer_config_defaults.get(LAST_FIELD_ID, "")
    return int(recorded) if recorded.isdecimal() else -1


def _with_last_id(details: IndexDetails, last_id: int) -> IndexDetails:
    defaults = {**details.writer_config_defaults, LAST_FIELD_ID: str(last_id)}
    return replace(details, writer_config_defaults=defaults)


def _library_fields(schema: pa.Schema) -> tuple[TableField, ...]:
    """Return the fields that the library makes of a schema, with ids that count from 0."""
    with scratch_directory() as scratch:
        try:
            lance.LanceDataset.commit(scratch, LanceOperation.Overwrite(schema, []))
        except LIBRARY_ERRORS as error:
            raise storage_failure(error, "building the new schema", where=str(scratch)) from error
        (made,) = (scratch / "_versions").glob("*.manifest")
        return decode_fields(made.read_bytes(), where=str(made))


def _renumbered(
    made: Sequence[TableField],
    before: Sequence[TableField],
    origins: Mapping[str, str],
    last_id: int,
) -> list[TableField]:
    """Give the fields of the new schema the ids they had, and new ones to those that are new."""
    known = paths(before)
    ids = {NO_PARENT: NO_PARENT}
    renumbered = []
    for path, field in paths(made).items():
        origin = known.get(origins.get(path, ""))
        if origin is None:
            last_id += 1
            field_id, kept = last_id, field
        else:
            # All that the library knows of it besides, such as the marks of the primary key.
            field_id, kept = origin.id, origin
            if field.logical_type != origin.logical_type:
                kept = origin.typed_as(field)
        ids[field.id] = field_id
        renumbered.append(replace(kept, name=field.name, id=field_id, parent_id=ids[field.parent_id]))
    return renumbered


def _births(fields: Sequence[TableField], base: BaseTable, version: int) -> Births:
    """Return the births of all columns; new columns get that of the coming version."""
    new = dict.fromkeys((field.id for field in fields if field.id not in base.births), birth_at(version))
    return {**births_to_mark(base.births), **new}


def _born(fields: Sequence[TableField], births: Births, before: BeforeMarks) -> list[TableField]:
    """Mark every column with its birth."""
    marks = marks_for(fields, births, before)
    return [
        replace(field, metadata={**field.metadata, **_encoded(marks[field.id])})
        if field.id in marks
        else field
        for field in fields
    ]


def _encoded(mark: Mapping[str, str]) -> dict[str, bytes]:
    return {key: value.encode() for key, value in mark.items()}


def _recast(base: BaseTable, alteration: Alteration, fields: Sequence[TableField]) -> Recast:
    """Return the columns to rewrite, with their current parts and names."""
    wider = Alteration(widen=alteration.widen).applied(base.schema, {})
    columns = {name: wider.schema.field(name) for name in sorted(wider.widened)}
    return Recast(base.store, columns, {path: field.id for path, field in paths(fields).items()})


def _operations(
    base: BaseTable, schema: pa.Schema, fields: Sequence[TableField], recast: Recast | None
) -> list[LanceOperation.BaseOperation]:
    """Return what sets the schema: the names first, since the library renames nothing in a ``Merge``."""
    metadata = {key.decode(): list(value) for key, value in (schema.metadata or {}).items()}
    whole = LanceSchema._from_protos(json.dumps(metadata), *encode_fields(fields))
    project = LanceOperation.Project(whole, preserves_nullability=True)
    return (
        [project]
        if recast is None
        else [project, LanceOperation.Merge(recast.fragments(base.dataset), whole)]
    )
