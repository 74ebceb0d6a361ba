"""The minimum and maximum of a column of the base table, from its zone map.

The library's zone map is one file per segment, ``zonemap.lance``, with a row for each zone: the least and the
greatest value in it, and how many are null. It is read once for a version of the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance.file import LanceFileReader

from weir.base.dataset import library_options
from weir.base.index_files import refuse_damaged_index_files
from weir.base.index_list import REUSE_INDEX, list_indexes
from weir.base.index_store import index_store
from weir.base.library_errors import LIBRARY_ERRORS
from weir.base.table import BaseTable
from weir.indexing.kinds import IndexKind

__all__ = ["ZoneBounds", "zone_bounds"]

_FILE = "zonemap.lance"
_NOMINAL_BYTES = 512


@dataclass(frozen=True, slots=True)
class ZoneBounds:
    """What a column holds, and perhaps more: rows that have been deleted count as well.

    Parameters
    ----------
    low, high : Scalar or None
        The least and the greatest value; None where all are null, or there are none.
    has_nulls : bool
        Whether some are null.
    """

    low: pa.Scalar | None
    high: pa.Scalar | None
    has_nulls: bool


def zone_bounds(base: BaseTable, column: str) -> ZoneBounds | None:
    """Return the bounds of a column of whole numbers or times.

    None if no zone map covers all fragments.

    Parameters
    ----------
    base : BaseTable
        The table.
    column : str
        The column.

    Raises
    ------
    CorruptionError
        A file of the zone map is damaged. It is named.
    """
    kind = base.schema.field(column).type
    if base.columns is not None or not (
        pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind)
    ):
        return None
    return base.engine.cache.get_or_load(
        ("zone bounds", base.namespace, base.version_key, column),
        partial(_read, base, column, kind),
        lambda _: _NOMINAL_BYTES,
        base.lifetime,
    )


def _read(base: BaseTable, column: str, kind: pa.DataType) -> ZoneBounds | None:
    dataset = base.dataset
    left = {fragment.fragment_id for fragment in dataset.get_fragments()}
    indexes = list_indexes(dataset)
    of_column = [
        one
        for one in indexes
        if one.field_names == [column] and IndexKind.of_library(one.index_type) is IndexKind.ZONEMAP
    ]
    if len(of_column) != 1 or any(one.name == REUSE_INDEX for one in indexes):
        return None
    refuse_damaged_index_files(
        base,
        {of_column[0].name},
        lambda file: file.path.endswith(_FILE),
        because="rows would be missed",
        hint="weir repair rebuilds the index from the rows",
    )
    parts: list[pa.Table] = []
    for segment in of_column[0].segments:
        covered = left.intersection(segment.fragment_ids)
        left -= covered
        zones = _zones(base, str(segment.uuid), kind) if covered else None
        if covered and zones is None:
            return None
        if zones is not None:
            parts.append(zones.filter(pc.is_in(zones.column("fragment_id"), pa.array(covered, pa.uint64()))))
    if left or not parts:
        return None
    return _bounds(pa.concat_tables(parts), dataset)


def _zones(base: BaseTable, uuid: str, kind: pa.DataType) -> pa.Table | None:
    """Return the zones of a segment; None if its file is not as expected: the library's error says more."""
    place = f"{index_store(base, uuid).uri}/_indices/{uuid}/{_FILE}"
    expected = {"min": kind, "max": kind, "null_count": pa.uint32(), "fragment_id": pa.uint64()}
    expected["zone_length"] = pa.uint64()
    try:
        reader = LanceFileReader(place, storage_options=library_options(base.store))
        zones = reader.read_all(batch_size=max(reader.num_rows(), 1)).to_table()
    except LIBRARY_ERRORS:
        return None
    known = {one.name: one.type for one in zones.schema}
    return zones.select(list(expected)) if known.items() >= expected.items() else None


def _bounds(zones: pa.Table, dataset: lance.LanceDataset) -> ZoneBounds | None:
    rows = sum(fragment.physical_rows for fragment in dataset.get_fragments())
    if (pc.sum(zones.column("zone_length")).as_py() or 0) < rows:
        return None
    # A zone of nulls alone has neither.
    told = pc.or_(
        pc.is_valid(zones.column("min")), pc.equal(zones.column("null_count"), zones.column("zone_length"))
    )
    if not pc.all(told).as_py():
        return None
    return ZoneBounds(
        pc.min(zones.column("min")),
        pc.max(zones.column("max")),
        has_nulls=bool(pc.sum(zones.column("null_count")).as_py()),
    )
