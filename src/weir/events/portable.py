"""Export and restore of a store, as files that other programs can read.

As Parquet: ``events/TYPE/NNNNN.parquet`` with the columns of the type. As length-prefixed JSON: ``NNNNN.snp``
with events and ``NNNNN.smt`` with the ranges they cover, each an 8-byte header followed by length-prefixed
JSON entries. A manifest beside them lists the files with their checksums and the types; it is written last.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from weir.errors import CorruptionError, InputError, ObjectNotFoundError, OptionError, SchemaError
from weir.events.calendar import with_days
from weir.events.event_types import EventType
from weir.events.field_types import FieldType
from weir.events.instants import to_micros
from weir.storage.interface import ObjectStore

__all__ = [
    "FILE_ROWS",
    "FORMATS",
    "ExportReport",
    "export_events",
    "read_manifest",
    "restored_tables",
    "stored_columns",
]

FORMATS = ("parquet", "snp")
MANIFEST = "manifest.json"
_FORMAT = 1
FILE_ROWS = 100_000
"""Events of a file of an export."""
_FILE = re.compile(r"events/[^/]+/\d{5,}\.(?:parquet|snp|smt)")
_SNP = b"WEIRSNP\x01"
_SMT = b"WEIRSMT\x01"


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was exported or restored.

    Parameters
    ----------
    events : int
        Events.
    files : int
        Files that contain them.
    """

    events: int
    files: int


def _digest(data: bytes) -> str:
    return xxhash.xxh3_128(data).hexdigest()


def export_events(
    target: ObjectStore,
    types: Mapping[str, EventType],
    parts_of: Callable[[EventType], Iterator[pa.Table]],
    format: str,
    options: Mapping[str, Any],
) -> ExportReport:
    """Write events to files.

    Files of a former call are kept if this call would write the same, so that a call can be repeated after a
    crash. Other files of a former call are deleted.

    Parameters
    ----------
    target : ObjectStore
        Where to.
    types : mapping of str to EventType
        The types.
    parts_of : callable
        Yields the events of a type in the order of their ids, :data:`FILE_ROWS` of a file at a time.
    format : str
        ``"parquet"`` or ``"snp"``.
    options : mapping
        Of the store.

    Raises
    ------
    OptionError
        If the format is unknown.
    """
    if format not in FORMATS:
        raise OptionError(
            f"an export is of format {' or '.join(FORMATS)}, not {format!r:.40}", where="format"
        )
    files, events = [], 0
    # Without its manifest it is no export.
    target.delete([MANIFEST])
    for kind in types.values():
        for number, part in enumerate(parts_of(kind)):
            events += part.num_rows
            for name, data in _encoded(kind, part, number, format):
                path = f"events/{kind.name}/{name}"
                present = target.head(path)
                if present is None or present.size != len(data) or bytes(target.get(path)) != data:
                    target.put(path, data)
                files.append(
                    {"path": path, "digest": _digest(data), "type": kind.name, "rows": part.num_rows}
                )
    manifest = {
        "format": _FORMAT,
        "files_are": format,
        "options": dict(options),
        "types": {name: kind.to_json() for name, kind in types.items()},
        "files": files,
    }
    target.put(MANIFEST, json.dumps(manifest, ensure_ascii=False, indent=1).encode())
    target.delete(_left_by_others(target, files))
    return ExportReport(events, len(files))


def _left_by_others(target: ObjectStore, files: list[dict[str, Any]]) -> list[str]:
    """Return files of an earlier export that are not part of this one; they may contain erased events."""
    written = {one["path"] for one in files}
    return [
        one.path for one in target.list("events") if one.path not in written and _FILE.fullmatch(one.path)
    ]


def _encoded(kind: EventType, rows: pa.Table, number: int, format: str) -> Iterator[tuple[str, bytes]]:
    if format == "parquet":
        buffer = BytesIO()
        # In one piece: how the bytes are laid out depends on the pieces.
        pq.write_table(rows.combine_chunks(), buffer, compression="zstd")
        yield f"{number:05}.parquet", buffer.getvalue()
        return
    yield f"{number:05}.snp", _SNP + b"".join(_entry(one) for one in _events(kind, rows))
    yield f"{number:05}.smt", _SMT + b"".join(_entry(one) for one in _ranges(kind, rows))


def _entry(value: Mapping[str, Any]) -> bytes:
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return struct.pack("<I", len(data)) + data


def _events(kind: EventType, rows: pa.Table) -> Iterator[dict[str, Any]]:
    for row in rows.to_pylist():
        core = {name: row.pop(name) for name in ("event_id", "context_id", "event_type")}
        at = to_micros(row.pop("timestamp"))
        payload = {name: _plain(value) for name, value in row.items() if value is not None}
        yield {**core, "timestamp": at, "payload": payload}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return {"float": str(value)}
    return value


def _ranges(kind: EventType, rows: pa.Table) -> Iterator[dict[str, Any]]:
    grouped = rows.group_by("context_id", use_threads=False).aggregate(
        [("timestamp", "min"), ("timestamp", "max")]
    )
    for row in grouped.to_pylist():
        yield {
            "uid": kind.name,
            "context_id": row["context_id"],
            "from_ts": to_micros(row["timestamp_min"]),
            "to_ts": to_micros(row["timestamp_max"]),
        }


# --- The way back --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of an export.

    Parameters
    ----------
    types : mapping of str to EventType
        Its types.
    files : tuple of (path, digest, type, rows)
        Its files.
    """

    types: Mapping[str, EventType]
    files: tuple[tuple[str, str, str, int], ...]


def read_manifest(source: ObjectStore) -> Manifest:
    """Return the manifest of an export.

    Raises
    ------
    InputError
        If it is missing or cannot be read.
    """
    where = f"{source.uri}/{MANIFEST}"
    try:
        stored = json.loads(bytes(source.get(MANIFEST)))
        if stored["format"] != _FORMAT:
            raise InputError(f"the export is of format {stored['format']!r:.20}", where=where)
        types = {name: EventType.from_json(name, one) for name, one in stored["types"].items()}
        files = tuple((one["path"], one["digest"], one["type"], one["rows"]) for one in stored["files"])
    except ObjectNotFoundError:
        raise InputError("there is no export", where=where, hint="An unfinished export has none") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the export cannot be read: {error!r:.200}", where=where) from error
    for path, _, kind, _ in files:
        if kind not in types or not str(path).startswith(f"events/{kind}/") or ".." in str(path):
            raise InputError(
                f"the export names a file that does not belong to it: {path!r:.100}", where=where
            )
    return Manifest(types, files)


def restored_tables(source: ObjectStore, manifest: Manifest) -> Iterator[tuple[EventType, pa.Table]]:
    """Yield the events of an export file by file, with checksums verified.

    Raises
    ------
    CorruptionError
        If a file is missing or damaged.
    """
    for path, digest, name, rows in manifest.files:
        where = f"{source.uri}/{path}"
        try:
            data = bytes(source.get(path))
        except ObjectNotFoundError:
            raise CorruptionError("a file of the export is missing", where=where) from None
        if _digest(data) != digest:
            raise CorruptionError("a file of the export is not what was exported", where=where)
        kind = manifest.types[name]
        if path.endswith(".smt"):
            continue
        try:
            table = _parquet(data) if path.endswith(".parquet") else _snapshot(data, kind)
        except (pa.ArrowException, ValueError, KeyError, TypeError, struct.error) as error:
            raise CorruptionError(
                f"a file of the export cannot be read: {error!r:.200}", where=where
            ) from error
        if table.num_rows != rows:
            raise CorruptionError(
                f"a file of the export has {table.num_rows} events, not {rows}", where=where
            )
        yield kind, _checked(table, kind, where)


def stored_columns(kind: EventType, rows: pa.Table) -> pa.Table:
    """Return events, possibly of an older version of their type, in the layout of the events table."""
    names = {"event_id", "context_id", "event_type", "timestamp"}
    columns = {name: rows.column(name) for name in rows.column_names if name in names}
    for name in rows.column_names:
        if name not in names:
            columns[kind.columns[name][-1]] = rows.column(name).cast(kind.fields[name].arrow, safe=False)
    return pa.table(with_days(columns))


def _parquet(data: bytes) -> pa.Table:
    return pq.read_table(BytesIO(data))


def _snapshot(data: bytes, kind: EventType) -> pa.Table:
    if data[: len(_SNP)] != _SNP:
        raise ValueError("the header is different")
    rows, at = [], len(_SNP)
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        entry = json.loads(data[at + 4 : at + 4 + size], parse_float=Decimal)
        at += 4 + size
        payload = entry["payload"]
        values = {name: _value(field, payload.get(name)) for name, field in kind.fields.items()}
        core = {name: entry[name] for name in ("event_id", "context_id", "event_type", "timestamp")}
        rows.append({**core, **values})
    return pa.Table.from_pylist(rows, kind.schema)


def _value(field: FieldType, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, dict):
        return float(value["float"])
    if field.item is not None and isinstance(value, list):
        return [_value(field.item, one) for one in value]
    return field.checked(value)


def _checked(table: pa.Table, kind: EventType, where: str) -> pa.Table:
    schema = kind.schema
    if table.column_names != schema.names:
        raise SchemaError(f"a file of the export has columns {', '.join(table.column_names)}", where=where)
    table = table.cast(schema)
    types = pc.unique(table.column("event_type")).to_pylist()
    if (
        types not in ([kind.name], [])
        or table.column("event_id").null_count
        or table.column("context_id").null_count
    ):
        raise CorruptionError("a file of the export has invalid events", where=where)
    return table
