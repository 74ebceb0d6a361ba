"""Verifying one generation: its rows, key index and Bloom filter agree."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lance.file import LanceFileReader

from weir.base.dataset import library_options
from weir.base.dataset_fields import generation_columns
from weir.errors import CorruptionError, SchemaError, StorageError, WeirError
from weir.format import layout, pk_index
from weir.format.bloom_filter import BloomFilter
from weir.format.field_ids import without_field_ids
from weir.format.generation_catalog import GenerationCatalog
from weir.format.key_hash import hash_keys
from weir.format.keys import encode_keys
from weir.format.newest import newest_rows
from weir.format.shard_manifest import FlushedGeneration, ShardManifest
from weir.format.wal_entry import TOMBSTONE
from weir.lsm.damage import reading
from weir.lsm.generation_files import check_generation_files
from weir.lsm.stored_columns import stored_columns
from weir.maintenance.verification.catalog import CatalogCheck
from weir.maintenance.verification.facts import TableFacts
from weir.maintenance.verification.finding import Finding, Findings
from weir.maintenance.verification.isolation import isolated
from weir.maintenance.verification.objects import get_or_none
from weir.storage.checksum import FileDamage

__all__ = ["GenerationCheck", "check_generation"]


@dataclass(frozen=True, slots=True)
class GenerationCheck:
    """The task of checking a generation. Picklable.

    Parameters
    ----------
    table : TableFacts
        The table.
    manifest : ShardManifest
        The manifest that lists it.
    flushed : FlushedGeneration
        What the manifest lists.
    """

    table: TableFacts
    manifest: ShardManifest
    flushed: FlushedGeneration

    @property
    def path(self) -> str:
        """Its directory."""
        return layout.generation_path(self.manifest.shard_id, self.flushed.path)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a generation that checks look at, those its dataset has deleted itself among them."""

    columns: pa.Table
    live: npt.NDArray[np.int64]
    keys: list[pa.Array]

    @property
    def encoded(self) -> pa.Array:
        return encode_keys(self.keys)


@dataclass(frozen=True, slots=True)
class _Content:
    """A generation, and what its catalog says of it."""

    check: GenerationCheck
    catalog: CatalogCheck | None


def check_generation(check: GenerationCheck) -> tuple[Finding, ...]:
    """Read all of a generation and return what is wrong with it.

    The library reads here what is proved to be what was written, and anything else in another process.
    """
    findings = Findings(check.table.store.uri, check.manifest.shard_id)
    store = check.table.store
    damaged: tuple[FileDamage, ...] = ()
    try:
        catalog = CatalogCheck.open(store, f"{check.path}/{layout.CATALOG}", findings)
        content = _Content(check, catalog)
        if catalog is not None:
            damaged = check_generation_files(store, check.path, catalog.catalog)
        if catalog is not None and catalog.catalog.checksums and not damaged:
            findings.found += _check_content(content)
        else:
            what, where = f"generation {check.flushed.generation}", f"{store.uri}/{check.path}"
            findings.found += isolated(_check_content, content, what=what, where=where)
    except (CorruptionError, StorageError) as error:
        if not damaged:
            findings.error("generation.unreadable", check.path, error.message)
    if not findings.found:
        # What agrees with everything and still is not what was written: a value with a flipped bit.
        for one in damaged:
            findings.error("generation.checksum", one.path, one.problem)
        if catalog is None:
            _check_no_catalog(check, findings)
    return tuple(findings.found)


def _check_content(content: _Content) -> tuple[Finding, ...]:
    """Compare the parts of a generation with each other."""
    check, catalog = content.check, content.catalog
    findings = Findings(check.table.store.uri, check.manifest.shard_id)
    try:
        rows = _read_rows(check, catalog)
    except (CorruptionError, StorageError) as error:
        findings.error("generation.unreadable", check.path, error.message)
        return tuple(findings.found)
    except SchemaError as error:
        findings.error("generation.columns", check.path, error.message)
        return tuple(findings.found)
    if catalog is not None:
        catalog.report(findings)
        _check_place(check, catalog.catalog, findings)
    if _check_rows(check, rows, findings):
        if check.table.merge_engine is None and check.table.primary_key:
            _check_key_index(check, rows, findings)
        if check.table.primary_key:
            _check_bloom_filter(check, rows, findings)
    return tuple(findings.found)


def _check_no_catalog(check: GenerationCheck, findings: Findings) -> None:
    """Tell a catalog that is gone from one that there never was, as in a generation of the library."""
    # The library leaves this out of the manifest, as it leaves out the catalog.
    if check.flushed.bloom_filter_checksum is not None:
        findings.warning(
            "catalog.missing",
            f"{check.path}/{layout.CATALOG}",
            "the catalog is gone: reads look into more files, and nothing tells whether these are whole",
        )


def _check_place(check: GenerationCheck, catalog: GenerationCatalog, findings: Findings) -> None:
    """Find a generation that lies in the directory of another: all that is in it agrees."""
    if not catalog.is_of(check.path):
        findings.error(
            "catalog.directory",
            check.path,
            f"the generation is that of {catalog.directory!r}, so that its rows count as newer or older",
        )


def _read_rows(check: GenerationCheck, catalog: CatalogCheck | None) -> _Rows:
    """Read every value of every row, and keep the columns that checks need."""
    table = check.table
    uri = f"{table.store.uri}/{check.path}"
    router = table.routers.get(check.manifest.shard_spec_id)
    kept = [*table.primary_key, TOMBSTONE]
    batches: list[pa.RecordBatch] = []
    with reading(f"generation {check.flushed.generation}", uri):
        dataset = lance.dataset(uri, storage_options=library_options(table.store))
        dataset.validate()  # type: ignore[no-untyped-call]
        resolved = generation_columns(
            dataset,
            table.row_schema,
            lambda: None if catalog is None else catalog.catalog,
            partial(stored_columns, table.store, check.manifest.shard_id, check.flushed),
        )
        resolved.apply(_no_rows(dataset.schema), where=uri)
        if router is not None:
            with suppress(WeirError):  # reported where rows are routed
                kept += [name for name in sorted(router.source_columns) if name not in kept]
        # Of a row that nobody asks for the column may be missing, as in a generation without the flag.
        kept = [name for name in kept if resolved.source_name(name) is not None]
        columns = resolved.select(kept)
        scanner = dataset.scanner(with_row_id=True, include_deleted_rows=True, scan_in_order=True)
        for batch in scanner.to_batches():
            if catalog is not None:
                catalog.add(batch)
            found = columns.apply(batch, where=uri)
            batches.append(found.append_column("_rowid", batch.column("_rowid")))
    schema = without_field_ids(columns.schema).append(pa.field("_rowid", pa.uint64()))
    rows = pa.Table.from_batches(batches, schema)
    missing = [name for name in (*table.primary_key, TOMBSTONE) if name not in kept]
    if missing:
        raise CorruptionError(f"the generation has no column {missing[0]!r}", where=uri)
    live = np.flatnonzero(rows.column("_rowid").is_valid().to_numpy())
    keys = [rows.column(name).combine_chunks() for name in table.primary_key]
    return _Rows(rows, live, keys)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _check_rows(check: GenerationCheck, rows: _Rows, findings: Findings) -> bool:
    """Check the rows; return whether their keys can be compared with anything."""
    told, found = check.flushed.physical_rows, rows.columns.num_rows
    if told and told != found:
        findings.error(
            "generation.rows", check.path, f"the manifest has {told} rows, and the generation {found}"
        )
    nulls = [name for name in (*check.table.primary_key, TOMBSTONE) if rows.columns.column(name).null_count]
    if nulls:
        findings.error("generation.nulls", check.path, f"the column {nulls[0]!r} has nulls")
        return False
    # With a merge engine older versions of a key count too, and without a key all rows.
    newest = np.arange(found)
    if found and check.table.merge_engine is None and check.table.primary_key:
        newest = np.sort(newest_rows(rows.keys))
    if not np.array_equal(newest, rows.live):
        findings.error(
            "generation.newest",
            check.path,
            f"{len(rows.live)} rows are live, and of {len(newest)} keys exactly the last row should",
        )
    strangers = check.table.strangers(rows.columns.take(pa.array(rows.live)), check.manifest)
    if strangers is not None:
        findings.error("generation.shard", check.path, strangers)
    return True


def _check_key_index(check: GenerationCheck, rows: _Rows, findings: Findings) -> None:
    shard_id, name = check.manifest.shard_id, check.flushed.path
    path = layout.page_data_path(shard_id, name)
    keys = rows.encoded
    expected = pk_index.build(keys)
    try:
        data = _read_file(check, path)
        values, ids = data.column("values").combine_chunks(), data.column("ids").combine_chunks()
    except (CorruptionError, StorageError, KeyError) as error:
        message = error.message if isinstance(error, WeirError) else f"there is no column {error}"
        findings.error("key_index.unreadable", path, message)
        return
    if values.type != keys.type or len(values) != len(keys):
        findings.error(
            "key_index.keys",
            path,
            f"the key index has {len(values)} keys of type {values.type}, and the generation "
            f"{len(keys)} rows with keys of type {keys.type}",
        )
        return
    if not values.equals(expected.page_data.column("values")):
        ascending = values.equals(values.take(pc.array_sort_indices(values)))
        text = "does not have the keys of the rows" if ascending else "is not in the order of its keys"
        findings.error("key_index.keys" if ascending else "key_index.order", path, f"the key index {text}")
        return
    offsets = ids.to_numpy(zero_copy_only=False).astype(np.int64)
    if not np.array_equal(np.sort(offsets), np.arange(len(keys))) or not keys.take(pa.array(offsets)).equals(
        values
    ):
        findings.error("key_index.rows", path, "the key index has keys at other rows than the generation")
        return
    path = layout.page_lookup_path(shard_id, name)
    try:
        pages = _read_file(check, path)
    except (CorruptionError, StorageError) as error:
        findings.error("key_index.unreadable", path, error.message)
        return
    if not pages.combine_chunks().equals(pa.Table.from_batches([expected.page_lookup])):
        findings.error("key_index.pages", path, "the key index does not have the pages of its keys")


def _read_file(check: GenerationCheck, path: str) -> pa.Table:
    store = check.table.store
    uri = f"{store.uri}/{path}"
    with reading("the key index", uri):
        return LanceFileReader(uri, storage_options=library_options(store)).read_all().to_table()


def _check_bloom_filter(check: GenerationCheck, rows: _Rows, findings: Findings) -> None:
    path = layout.bloom_filter_path(check.manifest.shard_id, check.flushed.path)
    data = get_or_none(check.table.store, path)
    if data is None:
        findings.warning("bloom_filter.missing", path, "there is no bloom filter; lookups are slower")
        return
    try:
        bloom_filter = BloomFilter.from_bytes(data, where=path)
    except CorruptionError as error:
        findings.error("bloom_filter.unreadable", path, error.message)
        return
    absent = int(np.count_nonzero(~bloom_filter.contains(hash_keys(rows.keys)))) if len(rows.keys[0]) else 0
    if absent:
        findings.error(
            "bloom_filter.keys", path, f"the bloom filter denies {absent} of {len(rows.keys[0])} keys"
        )
