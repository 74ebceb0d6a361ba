"""The first query of a process: a namespace on an object store that takes 20 ms to answer each request."""

from __future__ import annotations

import statistics
import time

import numpy as np
from tests.storage.round_trips import waves

import weir
import weir.namespaces
from benchmarks.context import Context, Result
from benchmarks.object_store import serve_object_store
from weir.namespaces import Documents, Limit, Metric, Nearest, Query, Write

__all__ = ["run"]

_LATENCY = 0.02
_DOCUMENTS = 2_000
_DIMENSIONS = 96


def run(context: Context) -> Result:
    """Measure the first query and the ones after it, of what is merged and of what is in the log."""
    generator = np.random.default_rng(7)
    matrix = generator.standard_normal((_DOCUMENTS, _DIMENSIONS)).astype(np.float32)
    rows = [{"id": id, "vector": vector} for id, vector in enumerate(matrix.tolist())]
    query = Query(rank_by=Nearest("vector", matrix[0]), limit=Limit(10), include=())
    rounds = 2 if context.scale.quick else 10
    conditions = [
        f"every request takes {1000 * _LATENCY:.0f} ms and what the simulated store needs, in its own process"
    ]
    with serve_object_store() as endpoint:
        uri, options = endpoint.endpoint.new_uri("root"), endpoint.endpoint.options
        with weir.namespaces.open(uri, storage_options=options) as namespaces:
            docs = namespaces.namespace("docs")
            docs.write(Write(upserts=Documents.of_rows(rows[:-100]), metric=Metric.COSINE))
            docs.compact()
            for state in ("merged", "with a write in the log"):
                context.say(f"cold: {state}")
                endpoint.answers_after(_LATENCY)
                first, second, requests, in_waves = [], [], [], []
                for _ in range(rounds):
                    engine = weir.Engine(maintenance="off")
                    with (
                        endpoint.recorded() as trips,
                        weir.namespaces.open(uri, storage_options=options, engine=engine) as opened,
                    ):
                        began = time.perf_counter()
                        opened.namespace("docs").query(query)
                        first.append(time.perf_counter() - began)
                    with weir.namespaces.open(uri, storage_options=options, engine=engine) as opened:
                        opened.namespace("docs").query(query)
                        began = time.perf_counter()
                        opened.namespace("docs").query(query)
                        second.append(time.perf_counter() - began)
                    requests.append(len(trips))
                    in_waves.append(waves(trips))
                endpoint.answers_after(0.0)
                later = 1000 * statistics.median(second)
                conditions.append(
                    f"{state}: the first query takes {1000 * statistics.median(first):.0f} ms "
                    f"(to be under 250), {statistics.median(requests):.0f} requests in "
                    f"{statistics.median(in_waves):.0f} waves; later ones {later:.0f} ms"
                )
                docs.write(Write(upserts=Documents.of_rows(rows[-100:])))
    return Result("cold", "The first query of a process on an object store", tuple(conditions), [])
