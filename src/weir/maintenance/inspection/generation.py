"""The content of a generation: rows, key index and Bloom filter, each as far as it can be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.file import LanceFileReader

from weir.base.dataset import library_options
from weir.base.index_list import list_indexes
from weir.errors import CorruptionError, StorageError
from weir.format import generation_catalog, layout
from weir.format.bloom_filter import BloomFilter
from weir.format.wal_entry import TOMBSTONE
from weir.lsm.damage import reading
from weir.maintenance.inspection.describe import plain
from weir.maintenance.inspection.description import Description
from weir.maintenance.verification.objects import get_or_none
from weir.storage.interface import ObjectStore

__all__ = ["inspect_generation"]


def inspect_generation(store: ObjectStore, path: str, *, rows: bool) -> Description:
    """Describe the generation in a directory."""
    problems: list[str] = []
    kept: list[pa.Table] = []

    def part(look: Callable[[], Any]) -> Any:
        try:
            return look()
        except (CorruptionError, StorageError) as error:
            problems.append(str(error))
            return None

    def dataset() -> dict[str, Any]:
        uri = f"{store.uri}/{path}"
        with reading("the generation", uri):
            found = lance.dataset(uri, storage_options=library_options(store))
            scanner = found.scanner(
                columns=[TOMBSTONE] if TOMBSTONE in found.schema.names else [], with_row_id=True
            )
            table = scanner.to_table()
            physical = sum(one.physical_rows for one in found.get_fragments())
            if rows:
                kept.append(found.to_table())
        tombstones = table.column(TOMBSTONE).to_numpy() if TOMBSTONE in table.schema.names else np.zeros(0)
        return {
            "version": found.version,
            "rows": table.num_rows,
            "superseded_rows": physical - table.num_rows,
            "tombstones": int(np.count_nonzero(tombstones)),
            "columns": {field.name: str(field.type) for field in found.schema},
            "indexes": [index.name for index in list_indexes(found)],
        }

    facts: dict[str, Any] = {"dataset": part(dataset)}
    facts["key_index"] = part(lambda: _key_index(store, path))
    facts["bloom_filter"] = part(lambda: _bloom_filter(store, f"{path}/{layout.BLOOM_FILTER}"))
    facts["catalog"] = part(lambda: _catalog(store, f"{path}/{layout.CATALOG}"))
    facts["objects"] = {one.path.removeprefix(f"{path}/"): one.size for one in store.list(path)}
    where = f"{store.uri}/{path}"
    return Description("generation", where, facts, tuple(problems), kept[0] if kept else None)


def _key_index(store: ObjectStore, path: str) -> dict[str, Any]:
    tables = []
    for name in (layout.PAGE_DATA, layout.PAGE_LOOKUP):
        uri = f"{store.uri}/{path}/{layout.PK_INDEX}/{name}"
        with reading("the key index", uri):
            reader = LanceFileReader(uri, storage_options=library_options(store))
            tables.append(reader.read_all().to_table())
    data, pages = tables
    values = data.column("values")
    return {
        "keys": data.num_rows,
        "pages": pages.num_rows,
        "type": str(values.type),
        "least": plain(values[0].as_py()) if len(values) else None,
        "greatest": plain(values[-1].as_py()) if len(values) else None,
    }


def _catalog(store: ObjectStore, path: str) -> Any:
    data = get_or_none(store, path)
    return None if data is None else plain(generation_catalog.decode(data, where=f"{store.uri}/{path}"))


def _bloom_filter(store: ObjectStore, path: str) -> dict[str, Any] | None:
    data = get_or_none(store, path)
    if data is None:
        return None
    nbytes = BloomFilter.from_bytes(data, where=f"{store.uri}/{path}").nbytes
    bits = np.unpackbits(np.frombuffer(data, np.uint8)).reshape(-1, 256)
    # A key is reported if one bit in each of the eight words of its block is set.
    filled = bits.reshape(len(bits), 8, 32).mean(axis=2)
    return {
        "nbytes": nbytes,
        "blocks": len(bits),
        "bits_set": int(bits.sum()),
        "false_positive_rate": round(float(filled.prod(axis=1).mean()), 6),
    }
