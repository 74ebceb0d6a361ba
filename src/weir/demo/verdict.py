"""The final comparison: every row, every column, against the result computed from the CSV."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from weir.demo.expected import Value
from weir.demo.flights import FLIGHT_SCHEMA

__all__ = ["Difference", "Verdict", "compare"]

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Difference:
    """One way in which a table is wrong.

    Parameters
    ----------
    kind : str
        ``missing``, ``unexpected`` (such as a row that should be deleted), ``doubled`` or ``value``.
    id : str
        The flight.
    detail : str
        For ``value``, the column and both values.
    """

    kind: str
    id: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind} row {self.id}{': ' + self.detail if self.detail else ''}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a table is right.

    Parameters
    ----------
    what : str
        The things that were compared.
    expected_rows, rows : int
        Rows there should be, and rows there are.
    columns : int
        Columns that were compared.
    differences : tuple of Difference
        All differences.
    """

    what: str
    expected_rows: int
    rows: int
    columns: int
    differences: tuple[Difference, ...] = field(repr=False)

    @property
    def identical(self) -> bool:
        """Whether there is no difference."""
        return not self.differences

    def describe(self) -> str:
        """Return the verdict for people, with the first differences."""
        if self.identical:
            return f"{self.what}: {self.rows:,} rows x {self.columns} columns, all as computed from the CSV"
        count = len(self.differences)
        lines = [
            f"{self.what}: {count:,} DIFFERENCE{'' if count == 1 else 'S'} "
            f"({self.rows:,} rows, expected {self.expected_rows:,})"
        ]
        lines += [f"  {difference}" for difference in self.differences[:_SHOWN]]
        if count > _SHOWN:
            lines.append(f"  and {count - _SHOWN:,} more")
        return "\n".join(lines)


def compare(what: str, table: pa.Table, expected: Mapping[str, tuple[Value, ...]]) -> Verdict:
    """Compare a table with the right answer, row for row.

    Parameters
    ----------
    what : str
        A description of the comparison, for people.
    table : pyarrow.Table
        All rows, in any order.
    expected : mapping of str to tuple
        By id, the values of each row in the order of the schema.
    """
    names = FLIGHT_SCHEMA.names
    differences = []
    if table.schema.names != names or table.schema.types != FLIGHT_SCHEMA.types:
        differences.append(Difference("value", "(schema)", f"the columns are {table.schema.names}"))
        return Verdict(what, len(expected), table.num_rows, len(names), tuple(differences))
    columns = [_plain(table.column(name)).to_pylist() for name in names]
    seen = set()
    for row in zip(*columns, strict=True):
        key = row[0]
        if key in seen:
            differences.append(Difference("doubled", key))
            continue
        seen.add(key)
        right = expected.get(key)
        if right is None:
            differences.append(Difference("unexpected", key))
        elif row != right:
            differences += [
                Difference("value", key, f"{name} is {is_!r} instead of {should!r}")
                for name, is_, should in zip(names, row, right, strict=True)
                if is_ != should
            ]
    differences += [Difference("missing", key) for key in expected if key not in seen]
    return Verdict(what, len(expected), table.num_rows, len(names), tuple(differences))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
