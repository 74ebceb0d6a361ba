"""Every call of an event store on an object store."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import weir
from tests.storage.round_trips import serve_recorded_s3
from tests.storage.s3 import S3Endpoint, s3_endpoint
from weir.errors import ConflictError, InputError, TableExistsError, TableNotFoundError
from weir.events import EventStore

__all__ = ["s3_endpoint"]

pytestmark = pytest.mark.timeout(600)

FIELDS = {"plan": ["free", "pro"], "country": "string | null", "amount": "decimal(12,2)"}


def rows(store: EventStore, text: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = store.execute(text).to_table().to_pylist()
    return found


@pytest.mark.parametrize("format", ["parquet", pytest.param("snp", marks=pytest.mark.long)])
def test_every_call(s3_endpoint: S3Endpoint, format: str) -> None:
    uri, options = s3_endpoint.new_uri("store"), s3_endpoint.options
    with pytest.raises(TableNotFoundError):
        weir.events.open(uri, storage_options=options)
    store = weir.events.create(uri, buckets=2, storage_options=options)
    with pytest.raises(TableExistsError):
        weir.events.create(uri, storage_options=options)
    store.define("signup", FIELDS)
    store.define("order", {"n": "int", "at": "datetime | null"})
    assert set(weir.events.open(uri, storage_options=options).types()) == {"signup", "order"}

    with store.writer() as writer:
        first = writer.append("signup", "u1", {"plan": "pro", "amount": "9.90"}, expected=0)
        with pytest.raises(ConflictError):
            writer.append("signup", "u1", {"plan": "pro", "amount": 1}, expected=0)
        with pytest.raises(InputError, match="plan"):
            writer.append("signup", "u1", {"plan": "gold", "amount": 1})
        both = writer.append_all(
            "u2",
            [("signup", {"plan": "free", "amount": 0}), ("order", {"n": 1}, "2026-01-01T00:00:00Z")],
            expected=0,
        )
        assert store.version("u1") == first.version
        assert store.version("u2") == both.version == both.ids[-1]
        assert store.version("nobody") == 0
        orders = pa.table({"context_id": [f"u{n % 4}" for n in range(40)], "n": list(range(40))})
        source = weir.Source("job", 1)
        assert writer.ingest("order", orders, source=source).rows == 40
        assert writer.ingest("order", orders, source=source).rows == 0
        assert writer.ingest_all([("order", orders.slice(0, 2))]).rows == 2
        writer.flush()

    assert rows(store, "QUERY order COUNT, TOTAL n") == [{"count": 43, "total_n": 782}]
    assert store.query("order", where="n > 37", columns=["n"]).to_table().column("n").to_pylist() == [38, 39]
    story = store.replay("u1").to_table()
    assert story.column("event_id").to_pylist() == sorted(story.column("event_id").to_pylist())
    assert story.column("n").to_pylist() == [None, *range(1, 40, 4), 1]
    joined = 'SELECT count(*) AS c FROM signup s JOIN "order" o ON s.context_id = o.context_id'
    assert store.sql(joined).to_table().to_pylist() == [{"c": 22}]
    assert rows(store, "QUERY signup FOLLOWED BY order LINKED BY context_id COUNT") == [{"count": 2}]

    by_plan = "QUERY signup COUNT, TOTAL amount BY plan"
    store.remember("plans", by_plan)
    with pytest.raises(TableExistsError):
        store.remember("plans", by_plan)
    store.execute('STORE signup FOR u3 PAYLOAD {"plan": "pro", "amount": "0.10"}')
    assert rows(store, "SHOW plans") == rows(store, by_plan)
    store.refresh("plans")
    assert store.materializations()["plans"].lag == 0

    subscription = store.subscribe("billing", types=["signup"])
    assert [batch.rows.num_rows for batch in subscription] == [3]
    subscription.commit()
    assert list(store.subscribe("billing", types=["signup"])) == []

    store.maintain()
    assert rows(store, "QUERY order COUNT, TOTAL n") == [{"count": 43, "total_n": 782}]
    assert rows(store, "SHOW plans") == rows(store, by_plan)
    store.retain("order", timedelta(days=1))
    assert rows(store, "QUERY order COUNT") == [{"count": 42}]
    store.forget("u1")
    assert store.version("u1") == 0
    with store.writer() as writer:
        assert writer.append("order", "u1", {"n": 7}, expected=0).version > both.version
    assert store.maintain().erasure.left == 0
    assert rows(store, "SHOW plans") == rows(store, by_plan)
    store.drop("plans")
    with pytest.raises(TableNotFoundError):
        store.show("plans")

    everything = store.replay().to_table()
    folder = f"{uri}-{format}"
    assert store.export(folder, format=format).events == everything.num_rows
    copy = weir.events.create(f"{uri}-copy-{format}", storage_options=options)
    assert copy.restore(folder).events == everything.num_rows
    assert copy.restore(folder).events == 0
    assert copy.replay().to_table().equals(everything)
    copy.close()
    store.close()


def test_processes_take_turns_and_take_over(s3_endpoint: S3Endpoint) -> None:
    uri, options = s3_endpoint.new_uri("store"), s3_endpoint.options
    store = weir.events.create(uri, buckets=2, storage_options=options)
    store.define("order", {"n": "int"})
    others = [store, weir.events.open(uri, storage_options=options)]
    won: list[tuple[int, int]] = []

    def append(which: int) -> None:
        with others[which].writer(hold=False, lease_wait=60) as writer:
            for n in range(8):
                while True:
                    try:
                        version = store.version("c")
                        won.append((version, writer.append("order", "c", {"n": n}, expected=version).version))
                        break
                    except ConflictError:
                        continue

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(append, range(2)))
    # Nobody has won a version that somebody else has.
    assert len({before for before, _ in won}) == len(won) == 16
    assert store.replay("c").to_table().column("event_id").to_pylist() == sorted(after for _, after in won)
    held = others[0].writer()
    held.append("order", "c", {"n": 100})
    with others[1].writer(takeover=True) as writer:
        last = writer.append("order", "c", {"n": 101}, timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    assert store.version("c") == last.version


def test_upkeep_after_forgetting_goes_through_every_table_once() -> None:
    """Every limit is what was counted; more is a step back that somebody has to mean."""
    with serve_recorded_s3(0) as endpoint:
        uri, options = endpoint.endpoint.new_uri("store"), endpoint.endpoint.options
        store = weir.events.create(uri, storage_options=options)
        store.define("order", {"n": "int"})
        with store.writer() as writer:
            for n in range(45):
                writer.append("order", f"u{n % 9}", {"n": n})
        store.maintain()
        store.forget("u1")
        with endpoint.recorded() as trips:
            assert store.maintain().erasure.events == 5
        assert len(trips) <= 315, Counter(trip.method for trip in trips)
        # Until what was erased is in no version any more, a round looks for it; it has nothing else to do.
        with endpoint.recorded() as trips:
            store.maintain()
        assert len(trips) <= 108, Counter(trip.method for trip in trips)
        store.close()
