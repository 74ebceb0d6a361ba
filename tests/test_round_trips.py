"""How many requests the first steps of a table take on an object store, Lance's own among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lance.dataset import Index

import weir
from tests.storage.round_trips import RecordedEndpoint, RoundTrip, serve_recorded_s3, waves
from weir.base.key_index import build_missing_segments
from weir.base.publish import SegmentChange
from weir.base.table import BaseTable
from weir.merge import service

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("vector", pa.list_(pa.float32(), 4)), ("text", pa.string())]
)
LATENCY = 0.3
"""Seconds; so long that what is asked for at once overlaps on a busy machine too."""

LOOK = 1
"""A writer looks for other columns once a second: on a busy machine that falls into what is counted."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[RecordedEndpoint]:
    with serve_recorded_s3(0) as served:
        yield served


def rows(start: int) -> pa.Table:
    vectors = np.arange(40, dtype=np.float32) + start
    columns = [np.arange(start, start + 10), pa.FixedSizeListArray.from_arrays(vectors, 4), ["x"] * 10]
    return pa.table(columns, schema=SCHEMA)


def search(table: weir.Table, consistency: str = "strong") -> int:
    found = table.search([0.0] * 4, k=3, column="vector", consistency=consistency).to_table()
    return len(found)


def search_words(table: weir.Table) -> int:
    return len(table.search_text("x", k=3, column="text").to_table())


def names(trips: list[RoundTrip]) -> str:
    return "\n".join(f"{trip.method} {trip.path}" for trip in trips)


def test_the_first_hour_of_a_table(endpoint: RecordedEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every limit is what was counted; more is a step back that somebody has to mean."""
    monkeypatch.setenv("WEIR_MAINTENANCE", "off")
    uri, options = endpoint.endpoint.new_uri(), endpoint.endpoint.options
    with endpoint.recorded() as trips:
        table = weir.create(uri, SCHEMA, primary_key="id", storage_options=options)
    # Whether there is one; whether what lists nothing is an object store, asked where nothing has told so for
    # ten seconds; two files of the key index; its manifest, and whether the library finds it.
    assert len(trips) <= 6, names(trips)
    with table.writer(flush_on_close=False) as writer:
        with endpoint.recorded() as trips:
            writer.upsert(rows(0))
        assert len(trips) <= 7, names(trips)
        with endpoint.recorded() as trips:
            writer.upsert(rows(10))
        assert len(trips) <= 1 + LOOK, names(trips)

        with endpoint.recorded() as trips:
            reader = weir.Engine(maintenance="off").open(uri, storage_options=options)
        # Which version is the newest, and its manifest, for the library and for Weir; the hint of the
        # shard's manifest, and that.
        assert len(trips) <= 6, names(trips)
        endpoint.answers_after(LATENCY)
        with endpoint.recorded() as trips:
            weir.Engine(maintenance="off").open(uri, storage_options=options)
        assert (len(trips), waves(trips)) == (6, 2), names(trips)
        with endpoint.recorded() as trips:
            assert search(reader) == 3
        # The shards and the base table; the lease; the manifest that is known, and the one after it; the log,
        # to its end in five.
        assert (len(trips), waves(trips)) == (10, 1), names(trips)
        for _ in range(2):
            with endpoint.recorded() as trips:
                assert search(reader) == 3
            # One listing of the shards, one look at the log, one at the base table.
            assert (len(trips), waves(trips)) == (3, 1), names(trips)
        with endpoint.recorded() as trips:
            assert search(reader, "bounded(3600000)") == 3
        assert trips == []
        endpoint.answers_after(0)

        with endpoint.recorded() as trips:
            writer.flush()
        # The list of the indexes is read with the first flush of whoever has made the table.
        assert len(trips) <= 11 + LOOK, names(trips)
        writer.upsert(rows(20))
        # What others write is seen by the wave that finds it.
        assert reader.scan().count() == 30
        writer.upsert(rows(30))
        with endpoint.recorded() as trips:
            assert reader.scan().count() == 40
        assert len(trips) <= 6, names(trips)
        with endpoint.recorded() as trips:
            writer.flush()
        assert len(trips) <= 10 + LOOK, names(trips)


@pytest.mark.parametrize(
    ("column", "kind", "parameters", "ask", "most", "in_waves"),
    [
        ("vector", "IVF_FLAT", {"num_partitions": 2}, search, 21, 7),
        ("text", "INVERTED", {}, search_words, 25, 8),
    ],
)
def test_the_first_search_by_an_index(
    endpoint: RecordedEndpoint,
    monkeypatch: pytest.MonkeyPatch,
    column: str,
    kind: str,
    parameters: dict[str, Any],
    ask: Callable[[weir.Table], int],
    most: int,
    in_waves: int,
) -> None:
    """Which rows the log replaces, the index and the rows of the answer are looked for beside each other."""
    monkeypatch.setenv("WEIR_MAINTENANCE", "off")
    uri, options = endpoint.endpoint.new_uri(), endpoint.endpoint.options
    table = weir.create(uri, SCHEMA, primary_key="id", storage_options=options)
    with table.writer(flush_on_close=False) as writer:
        for start in range(0, 300, 10):
            writer.upsert(rows(start))
        writer.flush()
        table.maintenance.merge()
        table.indexes.create(column, kind, **parameters)
        writer.upsert(rows(300))
        reader = weir.Engine(maintenance="off").open(uri, storage_options=options)
        endpoint.answers_after(LATENCY)
        with endpoint.recorded() as trips:
            assert ask(reader) == 3
        endpoint.answers_after(0)
        assert len(trips) <= most, names(trips)
        assert waves(trips) <= in_waves, names(trips)


def test_merges(endpoint: RecordedEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a merge has to read, its one commit of rows, and another one for the index and the shards.

    Whether the version is there still that the second one is put above is asked beside its transaction.
    """
    monkeypatch.setenv("WEIR_MAINTENANCE", "off")
    uri, options = endpoint.endpoint.new_uri(), endpoint.endpoint.options
    table = weir.create(uri, SCHEMA, primary_key="id", storage_options=options)
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(rows(0))
        writer.flush()
        with endpoint.recorded() as trips:
            assert table.maintenance.merge().rows_upserted == 10
        assert len(trips) <= 20, names(trips)
        writer.upsert(rows(50))
        writer.flush()
        endpoint.answers_after(LATENCY)
        with endpoint.recorded() as trips:
            assert table.maintenance.merge().rows_upserted == 10
        endpoint.answers_after(0)
        # The keys of the rows that the merge before has merged.
        assert len(trips) <= 21, names(trips)
        put = next(one for one in reversed(trips) if "/_transactions/" in one.path)
        beside = [one for one in trips if one.began < put.ended and put.began < one.ended]
        assert [one.method for one in beside if one.path.endswith(".manifest")] == ["GET"], names(beside)
    assert table.scan().count() == 20


def test_a_merge_goes_on_above_what_others_commit_meanwhile(
    endpoint: RecordedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not look for a newer version than its own: it finds the name of the next one taken."""
    monkeypatch.setenv("WEIR_MAINTENANCE", "off")
    uri, options = endpoint.endpoint.new_uri(), endpoint.endpoint.options
    table = weir.create(uri, SCHEMA, primary_key="id", storage_options=options)
    other = weir.open(uri, storage_options=options)

    def build(base: BaseTable, early: Sequence[Index]) -> SegmentChange | None:
        built = build_missing_segments(base, early)
        other.alter(add=[pa.field("added", pa.int64())])
        return built

    with table.writer() as writer:
        writer.upsert(rows(0))
    monkeypatch.setattr(service, "build_missing_segments", build)
    report = table.maintenance.merge()
    assert report.rows_upserted == 10
    assert report.version == BaseTable.open(table.internals.store).version
    found = weir.open(uri, storage_options=options).get([0, 9, 10])
    assert found.column("id").to_pylist() == [0, 9]
    assert "added" in found.schema.names
    assert table.maintenance.verify().findings == ()
