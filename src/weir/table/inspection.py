"""Inspection of what a table has stored: :attr:`weir.Table.inspect`."""

from __future__ import annotations

from weir.maintenance.inspect import inspect
from weir.maintenance.inspection.description import Description
from weir.table.open_table import OpenTable

__all__ = ["TableInspection"]


class TableInspection:
    """Shows what a table has stored, object by object. Got from :attr:`weir.Table.inspect`. Writes nothing.

    Parameters
    ----------
    table : OpenTable
        The table.
    """

    def __init__(self, table: OpenTable) -> None:
        self._table = table

    def show(self, what: str | None = None, *, rows: bool = False) -> Description:
        """Describe the table, or one of its objects.

        Parameters
        ----------
        what : str, optional
            A path below the table, or a short name: ``details``, ``snapshots``, ``marks``, ``pin/ID``,
            ``consumer/NAME``, or ``SHARD`` (the start of its id), ``SHARD/manifest``,
            ``SHARD/manifest/VERSION``, ``SHARD/wal/POSITION``, ``SHARD/generation/NUMBER``, ``SHARD/lease``.
            Default: the table.
        rows : bool, default False
            Whether to return the rows of a log entry or a generation too.

        Returns
        -------
        Description
            Its content and its problems; a damaged object is described as far as it can be read.

        Raises
        ------
        ObjectNotFoundError
            If the object does not exist.
        OptionError, UriError
            If ``what`` is not understood, or points outside the table.

        Examples
        --------
        >>> import tempfile, pyarrow as pa, weir
        >>> schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
        >>> table = weir.create(tempfile.mkdtemp() + "/people", schema, primary_key="id")
        >>> table.inspect.show().kind
        'table'
        """
        return inspect(self._table.store, what, rows=rows)
