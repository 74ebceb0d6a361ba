"""What the sharding tests compare with: the released library, DataFusion, and a Murmur3 of ten lines."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import lance
import pyarrow as pa
from datafusion import SessionConfig, SessionContext

from weir.format.index_details import ShardSpec

MASK = 0xFFFFFFFF


def field_ids(schema: pa.Schema) -> dict[str, int]:
    """Return the field ids Lance gives the columns of a new table without nested columns."""
    return {name: number for number, name in enumerate(schema.names)}


def library_values(batch: pa.RecordBatch, spec: ShardSpec) -> pa.RecordBatch:
    """Return the shard values the released library computes."""
    empty = batch.schema.empty_table()
    fields = [
        {
            "field_id": one.field_id,
            "source_ids": list(one.source_ids),
            "transform": one.transform,
            "expression": one.expression,
            "result_type": one.result_type,
            "parameters": dict(one.parameters),
        }
        for one in spec.fields
    ]
    lance_schema = lance.write_dataset(empty, "memory://").lance_schema
    return lance.evaluate_sharding_spec(batch, {"spec_id": spec.spec_id, "fields": fields}, lance_schema)


def library_buckets(column: pa.Array, num_buckets: int, schema: Any = None) -> list[int]:
    """Return the buckets the released library computes for a column."""
    batch = pa.record_batch({"c": column})
    field = {
        "field_id": "bucket",
        "source_ids": [0],
        "transform": "bucket",
        "expression": None,
        "result_type": "int32",
        "parameters": {"num_buckets": str(num_buckets)},
    }
    schema = schema or lance.write_dataset(batch.schema.empty_table(), "memory://").lance_schema
    result = lance.evaluate_sharding_spec(batch, {"spec_id": 1, "fields": [field]}, schema)
    values: list[int] = result.column(0).to_pylist()
    return values


def datafusion_values(columns: Mapping[str, pa.Array], sql: str) -> pa.Array:
    """Return a SQL expression over columns, one value per row."""
    batch = pa.record_batch(dict(columns))
    frame = _session().read_batch(batch)
    result = frame.select(frame.parse_sql_expr(sql).alias("value")).to_arrow_table()
    return result.column(0).combine_chunks()


def datafusion_matches(rows: pa.Table, condition: str) -> set[int]:
    """Return the row numbers that match a filter, as DataFusion sees it."""
    numbered = rows.append_column("row_number_", pa.array(range(rows.num_rows)))
    frame = _session().read_batch(numbered.to_batches()[0])
    return set(frame.filter(frame.parse_sql_expr(condition)).to_arrow_table()["row_number_"].to_pylist())


def lance_matches(dataset: lance.LanceDataset, condition: str) -> set[int] | None:
    """Return the row numbers that match a filter, as Lance sees it; None if Lance refuses the filter."""
    try:
        found = dataset.scanner(columns=[], filter=condition, with_row_id=True).to_table()
    except (ValueError, OSError):
        return None
    return set(found["_rowid"].to_pylist())


def simple_murmur3(blocks: Sequence[int], length: int, seed: int = 0) -> int:
    """Return the Murmur3 hash of 32-bit blocks."""
    h = seed
    for block in blocks:
        k = (block & MASK) * 0xCC9E2D51 & MASK
        k = (k << 15 | k >> 17) * 0x1B873593 & MASK
        h = (h ^ k) & MASK
        h = ((h << 13 | h >> 19) & MASK) * 5 + 0xE6546B64 & MASK
    h ^= length
    h = (h ^ h >> 16) * 0x85EBCA6B & MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & MASK
    return h ^ h >> 16


def bytes_as_blocks(value: bytes) -> list[int]:
    """Return the blocks the library cuts text into: whole ones, then each byte that is left."""
    whole = len(value) // 4 * 4
    return [
        *struct.unpack(f"<{whole // 4}I", value[:whole]),
        *struct.unpack(f"{len(value) - whole}b", value[whole:]),
    ]


def _session() -> SessionContext:
    config = SessionConfig().set("datafusion.sql_parser.enable_ident_normalization", "false")
    return SessionContext(config.with_target_partitions(1))
