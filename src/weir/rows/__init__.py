"""User input of rows and keys, converted to the table's schema and checked before the WAL.

Invariant I10: bad input changes nothing; the error names column, row and reason.
"""

from weir.rows.changes import (
    OPERATION,
    as_row_table,
    change_table,
    check_deletable,
)
from weir.rows.coerce import RowInput, pieces, repeatable
from weir.rows.conforming import conformed, tombstone_batches, upsert_batches
from weir.rows.keys import as_key_columns, as_key_table

__all__ = [
    "OPERATION",
    "RowInput",
    "as_key_columns",
    "as_key_table",
    "as_row_table",
    "change_table",
    "check_deletable",
    "conformed",
    "pieces",
    "repeatable",
    "tombstone_batches",
    "upsert_batches",
]
