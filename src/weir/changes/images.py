"""Changes as before- and after-images: the form for merges in other systems."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weir.changes.rows import BEFORE
from weir.schema.relabel import as_schema

__all__ = ["DELETE", "INSERT", "UPDATE_POSTIMAGE", "UPDATE_PREIMAGE", "with_images"]

INSERT = "insert"
UPDATE_PREIMAGE = "update_preimage"
UPDATE_POSTIMAGE = "update_postimage"
DELETE = "delete"

_OPERATION = "_op"


def with_images(changes: pa.Table) -> pa.Table:
    """Return changes with the rows before them as separate rows, in the order of the changes.

    A row that is new is ``insert``. One that takes the place of another is two rows, ``update_preimage`` with
    the row before and ``update_postimage``. A ``delete`` has the row that was deleted; a delete of what was
    not there has changed nothing, and is left out.

    Parameters
    ----------
    changes : Table
        As a feed with ``before=True`` yields them.

    Examples
    --------
    >>> before = pa.array([None, {"id": 1, "n": 1}, {"id": 1, "n": 2}, None])
    >>> operations = ["upsert", "upsert", "delete", "delete"]
    >>> columns = {"id": [1, 1, 1, 2], "n": [1, 2, None, None], "_op": operations}
    >>> for row in with_images(pa.table({**columns, "_before": before})).to_pylist():
    ...     print(*row.values())
    1 1 insert
    1 1 update_preimage
    1 2 update_postimage
    1 2 delete
    """
    after = changes.drop_columns([BEFORE])
    before = changes.column(BEFORE).combine_chunks()
    was_there = pc.is_valid(before).to_numpy(zero_copy_only=False)
    deleted = pc.equal(changes.column(_OPERATION), "delete").to_numpy()

    # Rows before the changes first, then the changes: of each there is either, both or none.
    of_table = {name: before.field(name) for name in (field.name for field in before.type)}
    replaced = pa.table(
        [of_table.get(name, after.column(name)) for name in after.schema.names], after.schema.names
    )
    together = pa.concat_tables([as_schema(replaced, after.schema), after])
    shown = np.stack([was_there, ~deleted], axis=1)
    places = np.stack([np.arange(len(deleted)), np.arange(len(deleted)) + len(deleted)], axis=1)
    operations = np.stack(
        [np.where(deleted, DELETE, UPDATE_PREIMAGE), np.where(was_there, UPDATE_POSTIMAGE, INSERT)], axis=1
    )
    at = after.schema.get_field_index(_OPERATION)
    rows = together.take(pa.array(places[shown]))
    return rows.set_column(at, after.schema.field(at), pa.array(operations[shown], pa.string()))
