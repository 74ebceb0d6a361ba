"""Changes by filter: the rows found, in parts that the shards decide on again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from weir.lsm.filters import check_filter
from weir.rows import check_deletable, tombstone_batches
from weir.sharding.shard_values import ShardValues
from weir.write.columns import TableColumns
from weir.write.decision.operation import Kind, LogPlaceBefore, Operation, Undecided
from weir.write.decision.prepare import update_values
from weir.write.decision.row_expression import RowExpression

__all__ = ["ChangeByFilter"]

_ROWS_OF_A_PART = 16_384


@dataclass(frozen=True, slots=True)
class ChangeByFilter:
    """A delete or an update of all rows that match. Made by :meth:`of`, which checks it.

    Parameters
    ----------
    kind : Kind
        ``DELETE`` or ``UPDATE``.
    where : str
        The filter.
    values : tuple of (str, RowExpression)
        The columns that an update sets, and to what.
    """

    kind: Kind
    where: str
    values: tuple[tuple[str, RowExpression], ...] = ()

    @classmethod
    def of(
        cls, where: str, kind: Kind, set_to: Mapping[str, str] | None, columns: TableColumns
    ) -> ChangeByFilter:
        """Return a checked change.

        Raises
        ------
        FilterError, InputError, SchemaError
            If it does not fit the table.
        """
        columns.refuse_append_only("an update")
        columns.refuse_merge_engine("a change by filter")
        check_filter(columns.schema, where)
        if kind is Kind.DELETE:
            check_deletable(columns.schema, columns.primary_key)
        return cls(kind, where, () if set_to is None else update_values(set_to, columns))

    def nothing(self, columns: TableColumns) -> tuple[pa.Table, pa.Table]:
        """Return the empty results of done and skipped keys."""
        keys = pa.schema([pa.field(name, columns.schema.field(name).type) for name in columns.primary_key])
        return keys.empty_table(), keys.empty_table()

    @property
    def numbers(self) -> frozenset[str]:
        """Columns of numbers that the values of an update are made of, to be read with the keys."""
        return frozenset(name for _, value in self._of_numbers for name in value.columns)

    @property
    def _of_numbers(self) -> list[tuple[str, RowExpression]]:
        return [one for one in self.values if one[1].is_of_numbers]

    def checked(self, found: pa.Table, columns: TableColumns) -> pa.Table:
        """Return matched rows without :attr:`numbers`, once an update was checked to have values for them.

        So a failing expression over numbers fails before anything is written. Texts and other large values of
        all rows may exceed memory, so they are checked part by part.

        Parameters
        ----------
        found : Table
            The rows that matched: :attr:`numbers`, their keys, and what decides their shards.
        columns : TableColumns
            The columns they have.

        Raises
        ------
        FilterError
            If an expression has no value for one.
        """
        for _, value in self._of_numbers:
            value.evaluate(found)
        kept = {*columns.primary_key, *columns.router.source_columns}
        return found.select([name for name in found.schema.names if name in kept])

    def parts(
        self,
        found: pa.Table,
        columns: TableColumns,
        places: Mapping[ShardValues, LogPlaceBefore],
        *,
        is_whole: bool,
    ) -> Iterator[dict[ShardValues, Undecided]]:
        """Yield the parts for the shards to decide on, one after the other.

        Parameters
        ----------
        found : Table
            The keys of the rows that matched, and what decides their shards.
        columns : TableColumns
            The columns they have.
        places : mapping of ShardValues to LogPlaceBefore
            How far each shard had come before they were looked for.
        is_whole : bool
            Whether these are all that matched. Then the last part of a shard is decided with the keys that
            were written since.
        """
        also = tuple(one for one in columns.router.source_columns if one not in columns.primary_key)
        for values, rows in columns.router.route(found):
            keys = rows.select(list(columns.primary_key))
            for start in range(0, rows.num_rows, _ROWS_OF_A_PART):
                is_last = start + _ROWS_OF_A_PART >= rows.num_rows
                part = rows.slice(start, _ROWS_OF_A_PART).combine_chunks()
                operation = Operation(
                    self.kind,
                    tombstone_batches(part, columns.wal_schema)[0],
                    where=self.where,
                    keeps=also if self.kind is Kind.DELETE else (),
                    values=self.values,
                )
                undecided = Undecided((operation,), columns.row_schema)
                if is_last and is_whole:
                    undecided.since = places[values]
                    undecided.seen = keys
                yield {values: undecided}
