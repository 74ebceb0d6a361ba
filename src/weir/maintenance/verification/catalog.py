"""Verifying the catalog of a generation against its rows: planners skip generations by it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import CorruptionError
from weir.format import generation_catalog
from weir.format.generation_catalog import ColumnSummary, GenerationCatalog
from weir.format.wal_entry import TOMBSTONE
from weir.maintenance.verification.finding import Findings
from weir.maintenance.verification.objects import get_or_none
from weir.storage.interface import ObjectStore

__all__ = ["CatalogCheck"]


@dataclass(slots=True)
class CatalogCheck:
    """Compares a catalog with rows that pass by.

    Parameters
    ----------
    path : str
        Path of the catalog.
    catalog : GenerationCatalog
        What it says.
    """

    path: str
    catalog: GenerationCatalog
    _rows: int = 0
    _tombstones: int = 0
    _nulls: dict[str, int] = field(default_factory=dict)
    _outside: set[str] = field(default_factory=set)

    @classmethod
    def open(cls, store: ObjectStore, path: str, findings: Findings) -> CatalogCheck | None:
        """Return the check of a catalog; None if there is none, as the library leaves it, or it is broken."""
        data = get_or_none(store, path)
        if data is None:
            return None
        try:
            return cls(path, generation_catalog.decode(data, where=path))
        except CorruptionError as error:
            findings.error("catalog.unreadable", path, error.message)
            return None

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in some rows."""
        self._rows += batch.num_rows
        names = batch.schema.names
        if TOMBSTONE in names:
            self._tombstones += batch.column(TOMBSTONE).true_count
        for name, summary in self.catalog.columns.items():
            if name in names:
                column = batch.column(name)
                self._nulls[name] = self._nulls.get(name, 0) + column.null_count
                if _is_outside(column, summary):
                    self._outside.add(name)

    def report(self, findings: Findings) -> None:
        """Report what does not agree, once all rows have passed by."""
        told = (self.catalog.rows, self.catalog.tombstones)
        if told != (self._rows, self._tombstones):
            findings.error(
                "catalog.rows",
                self.path,
                f"the catalog has {told[0]} rows with {told[1]} tombstones, and the generation "
                f"{self._rows} with {self._tombstones}",
            )
        for name in sorted(self._outside):
            text = f"column {name!r} has values outside the bounds of the catalog, and reads miss them"
            findings.error("catalog.bounds", self.path, text)
        for name, summary in sorted(self.catalog.columns.items()):
            nulls = self._nulls.get(name)
            # Where there are no bounds the nulls may not have been counted.
            if summary.minimum is not None and nulls is not None and nulls != summary.nulls:
                text = f"column {name!r} has {nulls} nulls, and the catalog says {summary.nulls}"
                findings.error("catalog.nulls", self.path, text)


def _is_outside(column: pa.Array, summary: ColumnSummary) -> bool:
    if summary.minimum is None or summary.maximum is None or column.null_count == len(column):
        return False
    try:
        below = pc.any(pc.less(column, summary.minimum.cast(column.type)))
        above = pc.any(pc.greater(column, summary.maximum.cast(column.type)))
    except (pa.ArrowException, NotImplementedError):
        return False  # values of a type that has no order are left out for no condition either
    return bool(below.as_py() or above.as_py())
