"""Shard snapshots as the MemWAL index publishes them: read without opening any shard manifest.

Lance MemWAL spec, "Shard Snapshot Storage". Snapshots are stored inline in the index details as the
bytes of a Lance file.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from lance.file import LanceFileReader, LanceFileWriter

from weir.base.details_commit import update_details
from weir.base.scratch import scratch_directory
from weir.base.table import BaseTable
from weir.cache import process_cache
from weir.errors import CorruptionError
from weir.format import shard_snapshot
from weir.format.shard_manifest import ShardManifest

__all__ = ["decode_published", "publish_shards", "published_shards"]


def published_shards(base: BaseTable) -> tuple[ShardManifest, ...]:
    """Return the shard manifests that the MemWAL index of this version publishes.

    Raises
    ------
    CorruptionError
        If the published bytes are not a shard snapshot.
    """
    inline = base.details.inline_snapshots
    if not inline:
        return ()
    where = f"{base.dataset.uri}, MemWAL index of version {base.version}, inline_snapshots"

    return process_cache().get_or_load(
        ("published", base.namespace, base.version),
        lambda: decode_published(inline, where),
        lambda _: len(inline),
    )


def decode_published(inline: bytes, where: str) -> tuple[ShardManifest, ...]:
    """Return the shard manifests in published bytes.

    Raises
    ------
    CorruptionError
        If they are not a shard snapshot.
    """
    return shard_snapshot.from_table(_from_lance_bytes(inline, where), where=where)


def publish_shards(base: BaseTable, manifests: Sequence[ShardManifest]) -> BaseTable:
    """Publish the state of all shards in the MemWAL index and return the table's new version.

    Raises
    ------
    ConflictError
        If concurrent commits did not settle.
    """
    inline = _to_lance_bytes(shard_snapshot.to_table(manifests))
    return update_details(
        base,
        lambda details: replace(
            details,
            snapshot_ts_millis=int(time.time() * 1000),
            num_shards=len(manifests),
            inline_snapshots=inline,
        ),
    )


def _to_lance_bytes(table: pa.Table) -> bytes:
    with scratch_directory() as directory:
        path = directory / "snapshot.lance"
        with LanceFileWriter(str(path), table.schema) as writer:
            writer.write_batch(table)
        return path.read_bytes()


def _from_lance_bytes(data: bytes, where: str) -> pa.Table:
    with scratch_directory() as directory:
        path = directory / "snapshot.lance"
        path.write_bytes(data)
        try:
            return LanceFileReader(str(path)).read_all().to_table()
        except (ValueError, OSError, RuntimeError) as error:
            raise CorruptionError(
                f"the published shard snapshot cannot be read: {error}", where=where, hint="Publish it again"
            ) from error
