"""The catalog of a flushed generation: the indexes and the value range of every column.

Weir's own file, ``catalog.json`` beside the Bloom filter: a JSON object with a checksum. A planner reads it
to leave a generation out without opening it, and a check of the whole table compares the checksums of the
files that it names with what is there. The library ignores it, and generations that the library has written
have none.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from weir.errors import CorruptionError
from weir.format import checked_json
from weir.format.buffers import Bytes
from weir.format.ipc_framing import read_frames
from weir.format.json_members import JsonMembers

__all__ = ["ColumnSummary", "GenerationCatalog", "decode", "encode"]

_FORMAT = "weir generation catalog 1"
_BY_ID = "field id"
_DIGEST = re.compile("[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """What a generation holds in one column.

    Parameters
    ----------
    kinds : tuple of str, default ()
        Kinds of the indexes that the generation has on it.
    nulls : int, default 0
        How many values are null, those of tombstones among them.
    minimum, maximum : Scalar or None, default None
        No value is below or above these, in the order of the column's type. None where nothing is known.
    """

    kinds: tuple[str, ...] = ()
    nulls: int = 0
    minimum: pa.Scalar | None = None
    maximum: pa.Scalar | None = None


@dataclass(frozen=True, slots=True)
class GenerationCatalog:
    """What a generation holds.

    Parameters
    ----------
    rows : int
        Its rows, tombstones among them.
    tombstones : int
        Its tombstones.
    columns : mapping of str to ColumnSummary
        The columns about which something is known, by their names in the generation.
    checksums : mapping of str to int
        XXH64, seed 0, of files of the generation, by their path in its directory.
    directory : str or None, default None
        Path of the generation's directory, relative to the root of the table. What else a generation holds
        does not distinguish it from another one with the same keys. None if its writer did not record it.
    has_field_ids : bool, default False
        Whether the columns of the generation have the table's field ids. Generations that Weir wrote before
        it gave them these go by names.
    """

    rows: int
    tombstones: int
    columns: Mapping[str, ColumnSummary] = field(default_factory=dict)
    checksums: Mapping[str, int] = field(default_factory=dict)
    directory: str | None = None
    has_field_ids: bool = False

    def is_of(self, directory: str) -> bool:
        """Whether this is the catalog of the generation in a directory, as far as it says."""
        return self.directory in (None, directory)


def encode(catalog: GenerationCatalog) -> bytes:
    """Return the bytes to store for a catalog."""
    bounded = {
        name: (column.minimum, column.maximum)
        for name, column in catalog.columns.items()
        if column.minimum is not None and column.maximum is not None
    }
    bounds = pa.table({name: pa.array([low, high], low.type) for name, (low, high) in bounded.items()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, bounds.schema) as writer:
        writer.write_table(bounds)
    place = {} if catalog.directory is None else {"directory": catalog.directory}
    by = {"by": _BY_ID} if catalog.has_field_ids else {}
    return checked_json.encode(
        {
            "format": _FORMAT,
            **place,
            **by,
            "rows": catalog.rows,
            "tombstones": catalog.tombstones,
            "columns": {
                name: {"kinds": list(column.kinds), "nulls": column.nulls}
                for name, column in catalog.columns.items()
            },
            "bounds": base64.b64encode(sink.getvalue().to_pybytes()).decode("ascii"),
            "xxh64": {path: f"{digest:016x}" for path, digest in sorted(catalog.checksums.items())},
        }
    )


def decode(data: Bytes, *, where: str) -> GenerationCatalog:
    """Return the catalog of stored bytes.

    Raises
    ------
    CorruptionError
        If they are not a catalog, or are damaged (invariant I11).
    """
    stored = JsonMembers("generation catalog", checked_json.decode(data, where=where), where)
    if stored.text("format") != _FORMAT:
        raise stored.invalid("format")
    bounds = _bounds(stored)
    columns: dict[str, ColumnSummary] = {}
    told = stored.members.get("columns")
    if not isinstance(told, dict):
        raise stored.invalid("columns")
    for name, members in told.items():
        if not isinstance(members, dict):
            raise stored.invalid("columns")
        column = JsonMembers("generation catalog", members, where)
        kinds = column.members.get("kinds")
        if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
            raise column.invalid("kinds")
        low, high = bounds.get(name, (None, None))
        columns[name] = ColumnSummary(tuple(kinds), column.count("nulls"), low, high)
    directory = stored.text("directory") if "directory" in stored.members else None
    return GenerationCatalog(
        stored.count("rows"),
        stored.count("tombstones"),
        columns,
        _checksums(stored),
        directory,
        stored.members.get("by") == _BY_ID,
    )


def _checksums(stored: JsonMembers) -> dict[str, int]:
    told = stored.members.get("xxh64", {})
    if not isinstance(told, dict) or not all(
        isinstance(digest, str) and _DIGEST.fullmatch(digest) for digest in told.values()
    ):
        raise stored.invalid("xxh64")
    return {path: int(digest, 16) for path, digest in told.items()}


def _bounds(stored: JsonMembers) -> dict[str, tuple[pa.Scalar, pa.Scalar]]:
    try:
        raw = base64.b64decode(stored.text("bounds"), validate=True)
        # Before Arrow sees them: a few bytes with another length in them could ask for any amount of memory.
        if any(frame.compressed for frame in read_frames(memoryview(raw), where=stored.where)):
            raise stored.invalid("bounds")
        table = pa.ipc.open_stream(raw).read_all()
        table.validate(full=True)
    except (ValueError, pa.ArrowException, OSError) as error:
        raise CorruptionError(
            f"the bounds of a generation catalog cannot be read: {error}", where=stored.where
        ) from error
    names = table.column_names
    if (table.num_columns and table.num_rows != 2) or len(set(names)) < len(names):
        raise stored.invalid("bounds")
    return {name: (bounds[0], bounds[1]) for name, bounds in zip(names, table.columns, strict=True)}
