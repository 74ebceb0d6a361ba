"""The operations of one write, as values that :meth:`weir.write.table_writer.TableWriter.apply` takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from weir.rows.coerce import RowInput

__all__ = ["Delete", "Insert", "OperationInput", "Patch", "Upsert"]


@dataclass(frozen=True, slots=True, eq=False)
class Upsert:
    """Insert rows, replacing those with the same primary key.

    Parameters
    ----------
    rows : table-like
        The rows.
    condition : str, optional
        SQL over the existing row, with the values of the new one as ``new.<column>``. If it does not hold,
        the row stays as it is. Rows that do not exist are written.

    Examples
    --------
    >>> Upsert([{"id": 1, "version": 8}], condition="version < new.version").condition
    'version < new.version'
    """

    rows: RowInput
    condition: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Insert:
    """Insert rows whose keys do not exist; existing rows stay as they are.

    Parameters
    ----------
    rows : table-like
        The rows.
    """

    rows: RowInput


@dataclass(frozen=True, slots=True, eq=False)
class Patch:
    """Change the given columns, and keep the others.

    Parameters
    ----------
    rows : table-like
        Keys, and the columns to set. In a list of dicts every row sets the columns it has.
    condition : str, optional
        As for :class:`Upsert`.
    missing : {"skip", "insert"}, default "skip"
        What to do with keys that do not exist: ``"skip"`` them, or ``"insert"`` rows with null in the other
        columns.
    """

    rows: RowInput
    condition: str | None = None
    missing: Literal["skip", "insert"] = "skip"


@dataclass(frozen=True, slots=True, eq=False)
class Delete:
    """Delete rows by primary key.

    Parameters
    ----------
    keys : list, Array or table-like
        Keys alone, or rows that contain them.
    condition : str, optional
        SQL over the existing row. With a condition, keys that do not exist count as skipped.
    """

    keys: RowInput
    condition: str | None = None


OperationInput: TypeAlias = Upsert | Insert | Patch | Delete
"""An operation of one write."""
