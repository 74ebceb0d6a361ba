"""The event store: a million flight events, against SQLite for writing and DuckDB over Parquet for asking."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

import weir
from benchmarks.context import Context, Result
from benchmarks.harness import Case, Contender, Sense, Target, measure
from benchmarks.sqlite import insert, open_durable
from weir.demo.typed_events import event_types, loaded, typed_batches
from weir.events import EventStore

__all__ = ["Batch", "created", "run"]

_WEIR, _SQLITE, _DUCKDB = "weir events", "SQLite", "DuckDB over Parquet"
_SHOW, _QUERY = "weir, SHOW", "weir, the query"
_THREADS = 16
_TABLE = (
    "CREATE TABLE IF NOT EXISTS events (event_id INTEGER PRIMARY KEY, event_type TEXT, context_id TEXT, "
    "timestamp INTEGER, payload TEXT)",
    "CREATE INDEX IF NOT EXISTS of_context ON events (context_id)",
)
_ROW = "INSERT INTO events (event_type, context_id, timestamp, payload) VALUES (?, ?, ?, ?)"
_TRIAL_FLIGHTS = 3_000
_INGESTED = 20
_DELAYS = "QUERY departed COUNT, TOTAL delay, AVG delay, MIN delay, MAX delay PER day BY carrier"
_NAMES = ("scheduled", "departed", "arrived", "diverted", "cancelled")

Batch = list[tuple[str, pa.Table]]
"""Events that are written at once, those of a type together."""


class WrongAnswerError(Exception):
    """Two contenders answer differently, so their times mean nothing."""


def run(context: Context) -> Result:
    """Measure ingest, single events of many threads, questions, and what is remembered."""
    place = context.directory / "events"
    context.say("events: writing the flights")
    batches = list(typed_batches(loaded(_TRIAL_FLIGHTS if context.scale.quick else None)))
    store = created(place / "flights", _carriers(batches))
    store.remember("delays", _DELAYS)
    with store.writer() as writer:
        for batch in batches:
            for name, rows in batch:
                writer.ingest(name, rows)
    store.maintain()
    store.export(place / "export")
    events = sum(rows.num_rows for batch in batches for _, rows in batch)
    cases = [
        *_ingest(context, place, batches),
        *_questions(context, store, place / "export", batches),
        _remembered(context, store, batches),
    ]
    store.close()
    return Result(
        "events",
        f"The event store: {events:,} events of flights by aircraft, merged",
        (
            f"{_WEIR}: fsync on, as is the default; answers see every acknowledged event",
            f"{_SQLITE}: WAL, synchronous=full, one index on the context, payloads as JSON text; "
            "a transaction for each batch, or for each single event",
            f"{_DUCKDB}: two threads, over the Parquet files of an export, one folder for each type; "
            "every answer as an Arrow table, compared with Weir's before timing",
        ),
        cases,
    )


def created(path: Path, carriers: list[str]) -> EventStore:
    """Create a store with the types of flight events."""
    store: EventStore = weir.events.create(path)
    for name, fields in event_types(carriers).items():
        store.define(name, fields)
    return store


def _carriers(batches: list[Batch]) -> list[str]:
    return sorted(
        {one for batch in batches for _, rows in batch for one in rows.column("carrier").unique().to_pylist()}
    )


# --- Writing -------------------------------------------------------------------------------------


def _ingest(context: Context, place: Path, batches: list[Batch]) -> Iterator[Case]:
    numbers = itertools.count()
    few = batches[:_INGESTED]
    carriers = _carriers(batches)
    rows = sum(table.num_rows for batch in few for _, table in batch) // len(few)
    rounds = min(3, context.scale.rounds)

    @contextmanager
    def ours() -> Iterator[Callable[[], object]]:
        turn = itertools.cycle(few)
        with created(place / f"weir-{next(numbers)}", carriers) as store, store.writer() as writer:
            yield lambda: writer.ingest_all(next(turn))

    @contextmanager
    def theirs() -> Iterator[Callable[[], object]]:
        turn = itertools.cycle([_as_rows(batch) for batch in few])
        connection = open_durable(place / f"sqlite-{next(numbers)}.db", *_TABLE)
        yield lambda: insert(connection, _ROW, next(turn))
        connection.close()

    context.say("events: batches")
    yield Case(
        "events",
        f"ingest of batches of about {rows:,}",
        measure([Contender(_WEIR, ours), Contender(_SQLITE, theirs)], rounds=rounds, calls=10),
        (Target(_WEIR, Sense.FASTER, 1.5, (_SQLITE,)),),
        rows_per_call=rows,
    )

    @contextmanager
    def our_threads() -> Iterator[Callable[[], object]]:
        with (
            created(place / f"weir-{next(numbers)}", carriers) as store,
            store.writer() as writer,
            ThreadPoolExecutor(_THREADS) as pool,
        ):
            payload = {"flight": "1", "carrier": "UA", "origin": "EWR"}

            def append(number: int) -> object:
                return writer.append("cancelled", f"aircraft-{number}", payload)

            yield lambda: list(pool.map(append, range(_THREADS)))

    @contextmanager
    def their_threads() -> Iterator[Callable[[], object]]:
        path = place / f"sqlite-{next(numbers)}.db"
        connections = [open_durable(path, *_TABLE) for _ in range(_THREADS)]
        row = [("cancelled", "aircraft", 0, '{"flight": "1", "carrier": "UA", "origin": "EWR"}')]
        with ThreadPoolExecutor(_THREADS) as pool:
            yield lambda: list(pool.map(lambda one: insert(one, _ROW, row), connections))
        for one in connections:
            one.close()

    context.say("events: threads")
    yield Case(
        "events",
        f"one event of each of {_THREADS} threads",
        measure([Contender(_WEIR, our_threads), Contender(_SQLITE, their_threads)], rounds=rounds, calls=30),
        (Target(_WEIR, Sense.FASTER, 1.5, (_SQLITE,)),),
        rows_per_call=_THREADS,
    )


def _as_rows(batch: Batch) -> list[tuple[str, str, int, str]]:
    """Return rows as SQLite takes them: made outside the timing, as Weir's Arrow tables are."""
    found = []
    for name, table in batch:
        fields = [one for one in table.column_names if one not in ("context_id", "timestamp")]
        payloads = [str(row) for row in table.select(fields).to_pylist()]
        micros = table.column("timestamp").cast(pa.int64()).to_pylist()
        found += list(
            zip([name] * len(micros), table.column("context_id").to_pylist(), micros, payloads, strict=True)
        )
    return found


# --- Asking --------------------------------------------------------------------------------------


def _questions(context: Context, store: EventStore, export: Path, batches: list[Batch]) -> Iterator[Case]:
    connection = duckdb.connect()
    connection.execute("SET threads = 2")
    connection.execute("SET TimeZone = 'UTC'")
    for name in _NAMES:
        if (export / "events" / name).is_dir():
            connection.execute(
                f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{export}/events/{name}/*.parquet')"
            )
    counts = pa.concat_tables([rows.select(["context_id"]) for batch in batches for _, rows in batch])
    by_aircraft = counts.group_by("context_id").aggregate([([], "count_all")]).sort_by("count_all")
    aircraft = by_aircraft.column("context_id")[-2].as_py()
    questions = {
        "replay of one aircraft": (
            f'REPLAY FOR "{aircraft}"',
            f"SELECT * FROM read_parquet('{export}/events/*/*.parquet', union_by_name = true) "
            f"WHERE context_id = '{aircraft}' ORDER BY event_id",
            0.5,
        ),
        "one type by two fields": (
            "QUERY departed WHERE carrier = UA AND delay > 120",
            "SELECT * FROM departed WHERE carrier = 'UA' AND delay > 120 ORDER BY event_id",
            1.0,
        ),
        "top 10": (
            "QUERY departed ORDER BY delay DESC LIMIT 10",
            "SELECT * FROM departed ORDER BY delay DESC, event_id LIMIT 10",
            1.2,
        ),
        "NOT, counted": (
            "QUERY departed WHERE NOT carrier = UA COUNT",
            "SELECT count(*) AS count FROM departed WHERE NOT carrier = 'UA'",
            1.5,
        ),
        "aggregates per day and carrier": (
            _DELAYS,
            "SELECT date_trunc('day', timestamp), carrier, count(*), sum(delay), avg(delay), min(delay), "
            "max(delay) FROM departed GROUP BY ALL ORDER BY ALL",
            1.2,
        ),
        "departed FOLLOWED BY arrived": (
            "QUERY departed FOLLOWED BY arrived LINKED BY context_id COUNT",
            "SELECT count(*) AS count FROM departed d ASOF JOIN arrived a "
            "ON d.context_id = a.context_id AND d.timestamp <= a.timestamp",
            3.0,
        ),
    }
    for name, (text, sql, factor) in questions.items():
        context.say(f"events: {name}")

        def ours(text: str = text) -> pa.Table:
            return store.execute(text).to_table()

        def theirs(sql: str = sql) -> pa.Table:
            return connection.sql(sql).to_arrow_table()

        _check(name, ours(), theirs())
        yield Case(
            "events",
            name,
            measure(
                [_contender(_WEIR, ours), _contender(_DUCKDB, theirs)],
                rounds=context.scale.rounds,
                calls=5,
                block_seconds=5.0,
            ),
            (Target(_WEIR, Sense.WITHIN, factor, (_DUCKDB,)),),
        )
    connection.close()


def _check(name: str, one: pa.Table, other: pa.Table) -> None:
    same = one.num_rows == other.num_rows
    if same and "event_id" in one.column_names:
        same = one.column("event_id").to_pylist() == other.column("event_id").to_pylist()
    elif same and "count" in one.column_names and one.num_rows == 1:
        same = one.column("count")[0].as_py() == other.column(0)[0].as_py()
    if not same:
        raise WrongAnswerError(f"{name}: {one.num_rows} rows of Weir, {other.num_rows} of DuckDB")


def _contender(name: str, call: Callable[[], object]) -> Contender:
    @contextmanager
    def session() -> Iterator[Callable[[], object]]:
        yield call

    return Contender(name, session)


def _remembered(context: Context, store: EventStore, batches: list[Batch]) -> Case:
    """Measure the first SHOW after another batch of events, and the query it stands for."""
    context.say("events: SHOW")
    turn = itertools.cycle(batches)
    store.show("delays").to_table()
    with store.writer() as writer:

        @contextmanager
        def shown() -> Iterator[Callable[[], object]]:
            # Of each block only the first call comes after new events, and it is the only one.
            for name, rows in next(turn):
                writer.ingest(name, rows)
            yield lambda: store.show("delays").to_table()

        asked = _contender(_QUERY, lambda: store.execute(_DELAYS).to_table())
        measurements = measure(
            [Contender(_SHOW, shown), asked],
            rounds=context.scale.rounds,
            calls=1,
            warm_up=0,
            block_seconds=0.0,
        )
    if not store.show("delays").to_table().equals(store.execute(_DELAYS).to_table()):
        raise WrongAnswerError("SHOW is not the query")
    return Case(
        "events",
        "the first SHOW after about 10,000 events more",
        measurements,
        (Target(_SHOW, Sense.WITHIN, 0.2, (_QUERY,)),),
    )
