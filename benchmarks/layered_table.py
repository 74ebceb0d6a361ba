"""A table with a base and unmerged generations, written by Weir and read by both sides.

Even ids are in the base table. Of each generation's keys half replace rows of the base table, less a few
that are deleted, and half are new, with odd ids; so a key that is missing lies between keys that exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.mem_wal import ShardSnapshot

import weir
from benchmarks.context import Scale
from benchmarks.samples import SCHEMA, SampleRows, label_of
from weir.base.table import BaseTable
from weir.log.manifest_store import list_shards, read_latest_manifest
from weir.storage.open import open_store

__all__ = ["LayeredTable", "WrongAnswerError", "build"]

Keys = npt.NDArray[np.int64]

_CHUNK_ROWS = 50_000
_DELETED_SHARE = 20
"""One of so many keys of a generation is deleted."""

_ABSENT, _BASE = 0, 1


class WrongAnswerError(Exception):
    """A contender's answer is not what was written, so its time means nothing."""


@dataclass(frozen=True, slots=True)
class LayeredTable:
    """The table, and what a reader should find in it.

    Parameters
    ----------
    uri : str
        Where it is.
    source_of : ndarray of int8
        By id: 0 for a key that is absent, 1 for one whose newest row is in the base table, 1 + n for one
        whose newest row is in generation n.
    """

    uri: str
    source_of: npt.NDArray[np.int8]

    @property
    def live_rows(self) -> int:
        """How many rows a reader should find."""
        return int(np.count_nonzero(self.source_of))

    @property
    def base_keys(self) -> Keys:
        """Keys whose newest row is in the base table."""
        return np.flatnonzero(self.source_of == _BASE)

    @property
    def generation_keys(self) -> Keys:
        """Keys whose newest row is in a generation."""
        return np.flatnonzero(self.source_of > _BASE)

    @property
    def missing_keys(self) -> Keys:
        """Keys that do not exist, deleted or never written."""
        return np.flatnonzero(self.source_of == _ABSENT)

    def dataset(self) -> lance.LanceDataset:
        """Open the base table with a handle of its own: nothing of it is cached yet."""
        return lance.dataset(self.uri)

    def snapshots(self) -> list[ShardSnapshot]:
        """Return what the library needs to know of the shards."""
        store = open_store(self.uri, None)
        details = BaseTable.open(store).details
        found = []
        for shard_id in list_shards(store):
            manifest = read_latest_manifest(store, shard_id)
            assert manifest is not None
            snapshot = ShardSnapshot(str(shard_id)).with_current_generation(manifest.current_generation)
            merged = details.merged_generation(shard_id)
            for flushed in manifest.flushed_generations:
                if flushed.generation > merged:
                    snapshot = snapshot.with_sstable(flushed.generation, flushed.path)
            found.append(snapshot)
        return found

    def check_rows(self, who: str, rows: pa.Table) -> None:
        """Compare the ids and labels of a whole scan with what was written.

        Raises
        ------
        WrongAnswerError
            Saying who read what.
        """
        self.check_range(who, 0, len(self.source_of), rows)

    def check_range(self, who: str, first: int, count: int, rows: pa.Table) -> None:
        """Compare the ids and labels of a scan of some ids, that follow each other, with what was written.

        Raises
        ------
        WrongAnswerError
            Saying who read what.
        """
        ids = rows.column("id").to_numpy()
        order = np.argsort(ids)
        expected = first + np.flatnonzero(self.source_of[first : first + count])
        if not np.array_equal(ids[order], expected):
            raise WrongAnswerError(
                f"{who} read {len(ids):,} rows, {len(np.unique(ids)):,} of them distinct; "
                f"{len(expected):,} are there"
            )
        self._check_labels(who, expected, rows.column("label").combine_chunks().take(pa.array(order)))

    def check_row(self, who: str, key: int, rows: pa.Table) -> None:
        """Compare the answer to one lookup with what was written.

        Raises
        ------
        WrongAnswerError
            Saying who read what.
        """
        expected = [key] if self.source_of[key] != _ABSENT else []
        if rows.column("id").to_pylist() != expected:
            raise WrongAnswerError(f"{who} found {rows.num_rows} rows for key {key}, not {len(expected)}")
        self._check_labels(who, np.asarray(expected, dtype=np.int64), rows.column("label").combine_chunks())

    def _check_labels(self, who: str, ids: Keys, labels: pa.Array | pa.ChunkedArray) -> None:
        wanted = [label_of(int(self.source_of[key]), int(key)) for key in ids]
        if labels.to_pylist() != wanted:
            raise WrongAnswerError(f"{who} read rows that are not the newest of their key")


@cache
def build(directory: Path, scale: Scale) -> LayeredTable:
    """Write the table, once per run: the base by merging, then the generations, which stay unmerged."""
    uri = str(directory / "layered")
    table = weir.create(uri, SCHEMA, primary_key="id", fsync=False)
    source_of = np.zeros(2 * scale.base_rows, dtype=np.int8)
    with table.writer() as writer:
        rows = SampleRows(_BASE)
        for start in range(0, scale.base_rows, _CHUNK_ROWS):
            ids = 2 * np.arange(start, min(start + _CHUNK_ROWS, scale.base_rows))
            writer.upsert(rows.table(ids))
            source_of[ids] = _BASE
        writer.flush()
        table.maintenance.merge()
        generator = np.random.default_rng(0)
        for number in range(1, scale.generations + 1):
            half = scale.generation_rows // 2
            old = 2 * generator.choice(scale.base_rows, half, replace=False)
            new = 2 * generator.choice(scale.base_rows, scale.generation_rows - half, replace=False) + 1
            dead = old[: scale.generation_rows // _DELETED_SHARE]
            written = generator.permutation(np.concatenate([old[len(dead) :], new]))
            writer.upsert(SampleRows(_BASE + number).table(written))
            writer.delete(dead.tolist())
            writer.flush()
            source_of[written] = _BASE + number
            source_of[dead] = _ABSENT
    return LayeredTable(uri, source_of)
