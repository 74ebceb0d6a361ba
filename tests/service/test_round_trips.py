"""How many requests the calls of a namespace make of an object store, Lance's own among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import weir
import weir.namespaces
from tests.storage.round_trips import RecordedEndpoint, RoundTrip, serve_recorded_s3, waves
from weir.namespaces import Documents, Limit, Namespaces, Nearest, Query, State, Write

LATENCY = 0.3
"""Seconds; so long that what is asked for at once overlaps on a busy machine too."""

LOOK = 1
"""A writer looks for other columns once a second: on a busy machine that falls into what is counted."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[RecordedEndpoint]:
    with serve_recorded_s3(0) as served:
        yield served


def names(trips: list[RoundTrip]) -> str:
    return "\n".join(f"{trip.method} {trip.path}" for trip in trips)


def documents(start: int, count: int = 10) -> Documents:
    return Documents.of_rows(
        [{"id": id, "vector": [float(id), 1.0], "n": id} for id in range(start, start + count)]
    )


NEAREST = Query(rank_by=Nearest("vector", np.array([0, 1], np.float32)), limit=Limit(3))


def test_the_first_hour_of_a_namespace(endpoint: RecordedEndpoint) -> None:
    """Every limit is what was counted; more is a step back that somebody has to mean."""
    uri, options = endpoint.endpoint.new_uri("root"), endpoint.endpoint.options

    def opened() -> Namespaces:
        return weir.namespaces.open(uri, storage_options=options, engine=weir.Engine(maintenance="off"))

    def counted(work: Callable[[], object], most: int, in_waves: int | None = None) -> None:
        endpoint.answers_after(0 if in_waves is None else LATENCY)
        with endpoint.recorded() as trips:
            work()
        endpoint.answers_after(0)
        print(len(trips), most, waves(trips), in_waves)
        assert len(trips) <= most, names(trips)
        assert in_waves is None or waves(trips) <= in_waves, names(trips)

    with opened() as namespaces, opened() as elsewhere:
        docs, there = namespaces.namespace("docs"), elsewhere.namespace("docs")
        counted(lambda: docs.write(Write(upserts=documents(0))), 27 + LOOK)
        # The definition is looked at, and the log gets an entry.
        counted(lambda: docs.write(Write(upserts=documents(10))), 2 + LOOK)
        counted(lambda: docs.query(NEAREST), 16)
        # The definition first; then the shards, the end of the log and the base table at once.
        counted(lambda: docs.query(NEAREST), 5, 3)
        # The definition; the table is opened in two waves, and what was written is there in the fourth.
        counted(lambda: there.query(NEAREST), 17, 4)
        counted(lambda: there.query(NEAREST), 4, 2)
        # Several queries see one state, which is looked for once.
        counted(lambda: there.queries([NEAREST] * 4), 4, 2)
        counted(lambda: there.query(NEAREST, State(max_staleness=60)), 1, 1)
        counted(lambda: docs.write(Write(patches=Documents.of_rows([{"id": 1, "n": 2}]))), 6 + LOOK, 3 + LOOK)
        counted(docs.compact, 115)
        counted(lambda: there.query(NEAREST), 19, 13)
        counted(lambda: there.query(NEAREST), 6, 4)
    with opened() as fresh:
        # Of what is merged the file of rows is opened while the shard is looked at, and read in two waves.
        counted(lambda: fresh.namespace("docs").query(NEAREST), 20, 6)
    with opened() as writing, opened() as fresh:
        writing.namespace("docs").write(Write(upserts=documents(5)))
        # Which of its rows were replaced is found out while it is searched.
        counted(lambda: fresh.namespace("docs").query(NEAREST), 26, 7)
