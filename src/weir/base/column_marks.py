"""Marking columns of a table with their births (:mod:`weir.format.field_births`) where these are missing.

Columns of tables created by the library or an older Weir have no mark, nor have those that plain Lance adds.
A writer marks them before it writes rows, in a separate version; it also records the columns of a composite
key, of which plain Lance may drop one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lance.dataset import LanceOperation

from weir.base.details_commit import update_details, wait_for_turn
from weir.base.manifest import TableManifest
from weir.base.publish import publish_operation
from weir.base.table import BaseTable
from weir.engine.logs import get_logger
from weir.errors import ConflictError, ObjectNotFoundError
from weir.format.field_births import FIRST, Births
from weir.format.index_details import IndexDetails
from weir.format.recorded_key import PRIMARY_KEY
from weir.format.recorded_key import encode as encode_key
from weir.format.table_fields import decode_fields, marks_for

__all__ = ["births_to_mark", "mark_columns", "marks_of_columns"]

_MAX_ATTEMPTS = 64
_log = get_logger(__name__)


def births_to_mark(births: Births) -> Mapping[int, str]:
    """Return the marks for columns and their parts, by field id.

    A column whose birth is unknown stays unmarked in a table with other marked ones.
    """
    if all(birth is None for birth in births.values()):
        return dict.fromkeys(births, FIRST)
    return {number: birth for number, birth in births.items() if birth is not None}


def marks_of_columns(base: BaseTable, manifest: TableManifest) -> LanceOperation.UpdateConfig:
    """Return the library's operation that marks the columns of a version with their births."""
    fields = decode_fields(manifest.data, where=manifest.where)
    marks = marks_for(fields, births_to_mark(base.births), base.before_marks)
    return LanceOperation.UpdateConfig(
        field_metadata_updates={
            number: LanceOperation.UpdateMap(dict(mark)) for number, mark in marks.items()
        }
    )


def mark_columns(base: BaseTable) -> BaseTable:
    """Mark the columns that have no mark, and record the key. Commits nothing where that has been done.

    Returns
    -------
    BaseTable
        The version passed in where there is nothing to mark; else the newest.

    Raises
    ------
    ConflictError
        Others committed during every attempt.
    StorageError
        The store failed.
    """
    return _with_recorded_key(_with_marks(base))


def _with_recorded_key(base: BaseTable) -> BaseTable:
    """Record the columns of a composite key. If one of them is dropped, the rest is not a key."""
    if base.has_recorded_key or len(base.primary_key) < 2:
        return base

    def recorded(details: IndexDetails) -> IndexDetails:
        if PRIMARY_KEY in details.writer_config_defaults:
            return details
        text = encode_key(base.primary_key, base.field_ids, base.births)
        return replace(details, writer_config_defaults={**details.writer_config_defaults, PRIMARY_KEY: text})

    return update_details(base, recorded)


def _with_marks(base: BaseTable) -> BaseTable:
    if None not in base.marks.values():
        return base
    for attempt in range(_MAX_ATTEMPTS):
        wait_for_turn(attempt)
        base = base.latest_to_change()
        if None not in base.marks.values():
            return base
        try:
            manifest = base.manifest()
        except ObjectNotFoundError:
            continue  # cleaned up, so there is a newer version
        if births_to_mark(base.births).items() <= base.marks.items():
            return base
        change = marks_of_columns(base, manifest)
        if publish_operation(base.store, manifest, change) is not None:
            _log.info("table.columns_marked", where=base.uri, version=base.version + 1)
            return base.latest()
    raise ConflictError(
        f"the table changed during each of {_MAX_ATTEMPTS} attempts to mark its columns",
        where=base.uri,
        hint="Run fewer services on the table at once",
    )
