"""A table with vectors and texts: an indexed base, unmerged generations and unflushed rows.

Even ids are in the base table. Of each later batch of keys half replace rows of the base table, a few of them
are deleted, and half are new, with odd ids. Vectors gather around centres, as embeddings do; words are as
unevenly common as in prose.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lance.mem_wal import ShardSnapshot

import weir
from benchmarks.context import Scale
from weir.base.table import BaseTable
from weir.log.manifest_store import list_shards, read_latest_manifest
from weir.storage.open import open_store

__all__ = ["DIMENSION", "SearchScale", "SearchedTable", "Vectors", "build"]

DIMENSION = 128

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("category", pa.string()),
        pa.field("at", pa.timestamp("us")),
        pa.field("text", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), DIMENSION)),
    ]
)

Vectors = npt.NDArray[np.float32]
Keys = npt.NDArray[np.int64]

_ABSENT, _BASE = 0, 1

_CENTRES = 2_000
_WORDS = 30_000
_SHORTEST, _LONGEST = 6, 30
_CHUNK_ROWS = 50_000
_QUERY_SERIES = 1_000_000
_DELETED_SHARE = 20
"""One of so many keys of a generation is deleted."""


@dataclass(frozen=True, slots=True)
class SearchScale:
    """How large the table is.

    Parameters
    ----------
    base_rows, generation_rows, unflushed_rows : int
        Rows of each part.
    generations : int
        Unmerged generations.
    partitions : int
        Of the vector index.
    """

    base_rows: int
    generation_rows: int
    unflushed_rows: int
    generations: int
    partitions: int

    @classmethod
    def of(cls, scale: Scale) -> SearchScale:
        """Return the size that the targets are meant for, or that of a trial."""
        return cls(20_000, 1_000, 250, 5, 32) if scale.quick else cls(1_000_000, 20_000, 5_000, 5, 1_000)


class _Rows:
    """Makes rows with given ids, the same in every run.

    Parameters
    ----------
    series : int
        Tells one series of rows from another.
    """

    def __init__(self, series: int = 0) -> None:
        # Every series gathers around the same centres.
        self._centres = np.random.default_rng(7).standard_normal((_CENTRES, DIMENSION), dtype=np.float32)
        self._generator = np.random.default_rng([7, series])
        ranks = 1.0 / np.arange(1, _WORDS + 1)
        self._cumulative = np.cumsum(ranks / ranks.sum())
        self._words = pa.array([word_of(number) for number in range(_WORDS)])

    def vectors(self, count: int) -> Vectors:
        chosen = self._centres[self._generator.integers(0, _CENTRES, count)]
        return chosen + self._generator.standard_normal((count, DIMENSION), dtype=np.float32) * np.float32(
            0.6
        )

    def words(self, count: int) -> npt.NDArray[np.int64]:
        drawn = np.searchsorted(self._cumulative, self._generator.random(count))
        return np.minimum(drawn, _WORDS - 1)

    def table(self, ids: npt.NDArray[np.int64]) -> pa.Table:
        lengths = self._generator.integers(_SHORTEST, _LONGEST, len(ids))
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        words = self._words.take(pa.array(self.words(int(starts[-1]))))
        texts = pc.binary_join(pa.ListArray.from_arrays(pa.array(starts), words), " ")
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(self.vectors(len(ids)).ravel()), DIMENSION)
        categories = pa.array([f"category {number}" for number in range(20)])
        return pa.table(
            [
                pa.array(ids),
                categories.take(pa.array(ids % 20)),
                pa.array(ids * 1_000_000).cast(pa.timestamp("us")),
                texts,
                vectors,
            ],
            schema=SCHEMA,
        )


def word_of(number: int) -> str:
    """Return a word; none is a stop word, nor does stemming make two of them one.

    Examples
    --------
    >>> word_of(0), word_of(29_999)
    ('zaaaax', 'zbsjvx')
    """
    letters = ""
    for _ in range(4):
        number, letter = divmod(number, 26)
        letters = chr(ord("a") + letter) + letters
    return f"z{letters}x"


@dataclass(frozen=True, slots=True)
class SearchedTable:
    """The table, and what is in it.

    Parameters
    ----------
    uri : str
        Where it is.
    scale : SearchScale
        How large it is.
    """

    uri: str
    scale: SearchScale

    def keys(self, count: int) -> dict[str, list[int]]:
        """Return some keys of rows in the base table, some of newer rows, and some missing ones."""
        source_of = np.full(2 * self.scale.base_rows, _ABSENT, dtype=np.int16)
        source_of[::2] = _BASE
        for number, (written, dead) in enumerate(_batches(self.scale)):
            source_of[written] = _BASE + 1 + number
            source_of[dead] = _ABSENT
        generator = np.random.default_rng(1)
        groups = {"base": source_of == _BASE, "fresh": source_of > _BASE, "missing": source_of == _ABSENT}
        return {
            name: generator.choice(np.flatnonzero(where), count, replace=False).tolist()
            for name, where in groups.items()
        }

    def queries(self, count: int) -> Vectors:
        """Return query vectors of the same kind as the rows'."""
        return _Rows(_QUERY_SERIES).vectors(count)

    def texts(self, count: int) -> list[str]:
        """Return text queries of two or three words, most of them neither rare nor everywhere."""
        generator = np.random.default_rng(13)
        drawn = (10 ** generator.uniform(1.3, 4.0, (count, 3))).astype(np.int64)
        sizes = generator.integers(2, 4, count)
        return [
            " ".join(word_of(int(word)) for word in row[:size])
            for row, size in zip(drawn, sizes, strict=True)
        ]

    def nearest(self, table: weir.Table, queries: Vectors, k: int) -> list[set[int]]:
        """Return the ids of the ``k`` nearest live rows by comparing all of them."""
        own = np.zeros((len(queries), 0), dtype=np.float32)
        kept = np.zeros((len(queries), 0), dtype=np.int64)
        for batch in table.scan(columns=["id", "vector"]).to_batches():
            values = batch.column("vector").flatten().to_numpy().reshape(-1, DIMENSION)
            found = np.einsum("ij,ij->i", values, values)[None, :] - 2 * queries @ values.T
            own = np.hstack([own, found])
            kept = np.hstack([kept, np.broadcast_to(batch.column("id").to_numpy(), found.shape)])
            if own.shape[1] > k:
                best = np.argpartition(own, k - 1, axis=1)[:, :k]
                own, kept = np.take_along_axis(own, best, 1), np.take_along_axis(kept, best, 1)
        return [set(row.tolist()) for row in kept]

    def dataset(self) -> lance.LanceDataset:
        """Open the base table."""
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
            for flushed in manifest.flushed_generations:
                if flushed.generation > details.merged_generation(shard_id):
                    snapshot = snapshot.with_sstable(flushed.generation, flushed.path)
            found.append(snapshot)
        return found


@cache
def build(directory: Path, scale: SearchScale) -> SearchedTable:
    """Write the table: a copy of the indexed base, the generations, and what stays unflushed."""
    uri = str(directory / f"searched-{scale.generations}")
    # Nothing in it is ever changed in place, so that links are as good as copies.
    shutil.copytree(_base(directory, replace(scale, generations=0)), uri, copy_function=os.link)
    table = weir.open(uri, fsync=False)
    rows = _Rows(scale.generations)
    # Closing it would flush what is to stay in the log.
    with table.writer(flush_on_close=False, takeover=True) as writer:
        for number, (written, dead) in enumerate(_batches(scale)):
            writer.upsert(rows.table(written))
            writer.delete(dead.tolist())
            if number < scale.generations:
                writer.flush()
    return SearchedTable(uri, scale)


def _batches(scale: SearchScale) -> Iterator[tuple[Keys, Keys]]:
    """Yield the keys that are written, and those that are deleted: by generation, and then unflushed."""
    generator = np.random.default_rng(0)
    for number in range(scale.generations + 1):
        count = scale.generation_rows if number < scale.generations else scale.unflushed_rows
        old = 2 * generator.choice(scale.base_rows, count // 2, replace=False)
        new = 2 * generator.choice(scale.base_rows, count - count // 2, replace=False) + 1
        dead = old[: count // _DELETED_SHARE]
        yield generator.permutation(np.concatenate([old[len(dead) :], new])), dead


@cache
def _base(directory: Path, scale: SearchScale) -> str:
    """Write the base table, by merging, and its indexes."""
    uri = str(directory / "searched-base")
    table = weir.create(uri, SCHEMA, primary_key="id", fsync=False)
    rows = _Rows()
    with table.writer() as writer:
        for start in range(0, scale.base_rows, _CHUNK_ROWS):
            writer.upsert(rows.table(2 * np.arange(start, min(start + _CHUNK_ROWS, scale.base_rows))))
    table.maintenance.merge()
    _make_indexes(uri, scale)
    return uri


def _make_indexes(uri: str, scale: SearchScale) -> None:
    dataset = lance.dataset(uri)
    dataset.optimize.compact_files(target_rows_per_fragment=scale.base_rows)
    dataset.create_scalar_index("text", "INVERTED", with_position=True)
    dataset.create_index(
        "vector", "IVF_PQ", num_partitions=scale.partitions, num_sub_vectors=16, sample_rate=64
    )
