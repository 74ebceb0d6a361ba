"""Pipelines with an event store at their end, or at their beginning: each event once, in its order."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import weir
from weir.errors import InputError, OptionError, PipelineError, SchemaError, TableNotFoundError
from weir.events.store import EventStore
from weir.schema.text import parse_schema
from weir.spark.pipeline import (
    AVAILABLE_NOW,
    FormatSource,
    Metrics,
    Pipeline,
    Services,
    TargetEvents,
    TargetTable,
    pipeline_state,
    read_pipeline_file,
)

pytestmark = pytest.mark.timeout(1800)

FIELDS: dict[str, Any] = {"n": "int", "state": ["new", "paid"], "amount": "decimal(9,2)", "on": "date | null"}
SCHEMA = "context_id STRING, n BIGINT, state STRING, amount STRING, timestamp TIMESTAMP"
LATER = timedelta(days=1)
AT_THE_END = Services(
    merge=LATER, index=LATER, compact=LATER, collect=LATER, maintain=LATER, runner="threads"
)
OFF = Services(merge=None, index=None, compact=None, collect=None, maintain=None)


@dataclass
class Landing:
    """Files of events as they come, and what was put into them: the numbers of each context, in order."""

    directory: Path
    files: int = 0
    numbers: dict[str, list[int]] = field(default_factory=dict)
    bad: list[int] = field(default_factory=list)

    def land(self, files: int, events: int = 40, *, bad: int = 0) -> None:
        """Put files there, each with some rows that are no events at its end."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for _ in range(files):
            lines = []
            for n in range(self.files * events, (self.files + 1) * events):
                context = f"c{n % 7}"
                self.numbers.setdefault(context, []).append(n)
                row = {
                    "context_id": context,
                    "n": n,
                    "state": "paid" if n % 3 else "new",
                    "amount": f"{n}.50",
                    "timestamp": f"2026-01-01T{n // 60 % 24:02}:{n % 60:02}:00Z",
                }
                lines.append(json.dumps(row))
            for n in range(self.files * bad, (self.files + 1) * bad):
                self.bad.append(n)
                lines.append(json.dumps({"context_id": "bad", "n": n, "state": "lost", "amount": "1"}))
            self.put("\n".join(lines))

    def put(self, text: str) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        hidden = self.directory / f"_{self.files:06}.json"
        hidden.write_text(f"{text}\n")
        os.utime(hidden, (1_500_000_000 + self.files, 1_500_000_000 + self.files))
        hidden.rename(self.directory / f"{self.files:06}.json")
        self.files += 1

    def source(self) -> FormatSource:
        return FormatSource("json", {"maxFilesPerTrigger": "1"}, str(self.directory), SCHEMA, in_order=True)


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(tmp_path / "landing")


def into_events(landing: Landing, tmp_path: Path, **changes: Any) -> Pipeline:
    values: dict[str, Any] = {
        "source": landing.source(),
        "table": TargetEvents(str(tmp_path / "store"), "order", fields=FIELDS, buckets=2, fsync=False),
        "checkpoint": str(tmp_path / "checkpoint"),
        "trigger": AVAILABLE_NOW,
        "services": OFF,
        "metrics": Metrics(every=LATER, log=False),
    }
    return Pipeline(**{**values, **changes})


def stories(store: EventStore) -> dict[str, list[int]]:
    """Return the numbers of each context in the order of its events."""
    found: dict[str, list[int]] = {}
    rows = store.replay(type="order").to_table().select(["event_id", "context_id", "n"]).to_pylist()
    assert [row["event_id"] for row in rows] == sorted({row["event_id"] for row in rows})
    for row in rows:
        found.setdefault(row["context_id"], []).append(row["n"])
    return found


def test_rows_become_events_and_the_store_is_kept_up(
    spark: SparkSession, landing: Landing, tmp_path: Path
) -> None:
    landing.land(files=3)
    pipeline = into_events(landing, tmp_path, services=AT_THE_END)
    checked = pipeline.check(spark)
    assert (checked.what, checked.exists) == ("event store", False)
    assert not (tmp_path / "store").exists()
    summary = pipeline.run(spark)
    assert (summary.uri, summary.rows, summary.batches) == (str(tmp_path / "store"), 120, 3)
    assert set(summary.services) == {"recover", "merge", "index", "compact", "collect", "maintain"}
    assert {(one.runs, one.last_error) for one in summary.services.values()} == {(1, "")}
    store = weir.events.open(tmp_path / "store")
    assert stories(store) == landing.numbers
    assert store.tables["events"].status().base_rows == 120
    first = store.execute("QUERY order WHERE n = 7").to_table().to_pylist()[0]
    assert str(first["amount"]) == "7.50"
    assert first["timestamp"].isoformat() == "2026-01-01T00:07:00+00:00"

    # It goes on from its checkpoint, refreshes what is remembered and erases what is forgotten.
    store.remember("states", "QUERY order COUNT BY state")
    store.forget("c1")
    landing.land(files=2)
    assert pipeline.check(spark).exists
    assert pipeline.run(spark).rows == 80
    left = {name: numbers for name, numbers in landing.numbers.items() if name != "c1"}
    left["c1"] = [n for n in landing.numbers["c1"] if n >= 120]
    assert stories(store) == left
    info = store.materializations()["states"]
    assert info.lag == 0
    assert store.show("states").to_table().equals(store.execute("QUERY order COUNT BY state").to_table())
    state = pipeline_state(pipeline)
    assert (state.exists, state.uri) == (True, str(tmp_path / "store"))
    assert state.unmerged_rows == 0


def test_a_store_is_a_source_of_tables_and_of_stores(
    spark: SparkSession, landing: Landing, tmp_path: Path
) -> None:
    landing.land(files=2)
    into_events(landing, tmp_path).run(spark)
    source = FormatSource("weir-events", {"type": "order"}, str(tmp_path / "store"))
    into_table = into_events(
        landing,
        tmp_path,
        source=source,
        transform="SELECT event_id, context_id, n FROM source WHERE state = 'paid'",
        table=TargetTable(
            str(tmp_path / "paid"),
            schema=parse_schema("event_id: int64!, context_id: string, n: int64"),
            primary_key=("event_id",),
            fsync=False,
        ),
        checkpoint=str(tmp_path / "to-table"),
    )
    copied = replace(
        into_table,
        transform="SELECT context_id, timestamp, n, state, amount FROM source",
        table=TargetEvents(str(tmp_path / "copy"), "order", fields=FIELDS, fsync=False),
        checkpoint=str(tmp_path / "to-store"),
    )
    for numbers in (80, 160):
        began = time.time()
        with into_table.start(spark) as running:
            assert running.wait(timedelta(minutes=20))
        assert running.latest is not None
        assert "event_id" in running.latest.arrival
        # The arrival of an event is when the first pipeline wrote it.
        assert running.latest.freshness_p99 is not None
        assert 0 < running.latest.freshness_p99 < time.time() - began + 1200
        copied.run(spark)
        rows = weir.open(tmp_path / "paid").scan(["n"]).to_table().column("n").to_pylist()
        assert sorted(rows) == [n for n in range(numbers) if n % 3]
        assert stories(weir.events.open(tmp_path / "copy")) == landing.numbers
        if numbers == 80:
            landing.land(files=2)
            into_events(landing, tmp_path).run(spark)


def test_what_is_no_event_goes_to_quarantine(spark: SparkSession, landing: Landing, tmp_path: Path) -> None:
    good = {"context_id": "c", "n": 1, "state": "new", "amount": "1.00"}
    bad: list[dict[str, Any]] = [
        {**good, "context_id": None},
        {**good, "context_id": ""},
        {**good, "n": None},
        {**good, "state": "lost"},
        {**good, "amount": "1.001"},
    ]
    landing.put("\n".join(map(json.dumps, [good, *bad, {**good, "n": 2}])))
    pipeline = into_events(landing, tmp_path, on_bad_record="quarantine")
    summary = pipeline.run(spark)
    assert (summary.rows, summary.bad_records) == (7, 5)
    assert stories(weir.events.open(tmp_path / "store")) == {"c": [1, 2]}
    found = weir.open(summary.quarantine).scan().to_table().to_pylist()
    assert sorted(row["reason"] for row in found) == [
        "event 'order', field 'amount': '1.001' does not fit decimal(9,2) exactly",
        "event 'order', field 'context_id': the name of a context is empty",
        "event 'order', field 'context_id': the name of a context is empty",
        "event 'order', field 'n': null is not allowed",
        "event 'order', field 'state': 'lost' is none of new, paid",
    ]
    assert pipeline_state(pipeline).bad_records == 5
    with pytest.raises(PipelineError, match=r"event 'order', field '\w+', row"):
        into_events(landing, tmp_path, checkpoint=str(tmp_path / "other")).run(spark)
    # Of a micro-batch that has failed nothing is there.
    assert stories(weir.events.open(tmp_path / "store")) == {"c": [1, 2]}


def test_types_are_defined_and_go_on(spark: SparkSession, landing: Landing, tmp_path: Path) -> None:
    landing.land(files=1)
    with pytest.raises(TableNotFoundError, match="give the pipeline the fields"):
        into_events(landing, tmp_path, table=TargetEvents(str(tmp_path / "store"), "order")).check()
    store = weir.events.create(tmp_path / "store", buckets=2, fsync=False)
    undefined = TargetEvents(str(tmp_path / "store"), "order", fsync=False)
    with pytest.raises(InputError, match="there is no event type 'order'"):
        into_events(landing, tmp_path, table=undefined).check()
    assert not into_events(landing, tmp_path).check().exists
    into_events(landing, tmp_path).run(spark)
    into_events(landing, tmp_path, table=undefined).check(spark)
    wider = replace(undefined, fields={**FIELDS, "note": "string | null"})
    landing.land(files=1)
    into_events(landing, tmp_path, table=wider).run(spark)
    assert store.types()["order"].version == 2
    # A pipeline that knows the former version goes on.
    landing.land(files=1)
    into_events(landing, tmp_path).run(spark)
    assert store.types()["order"].version == 2
    assert stories(store) == landing.numbers
    other = replace(wider, fields={**FIELDS, "n": "string"})
    with pytest.raises(SchemaError, match="does not widen"):
        into_events(landing, tmp_path, table=other).check()
    for transform, says in (
        ("SELECT n, state, amount FROM source", "column context_id is missing"),
        ("SELECT context_id, n, state FROM source", "field 'amount' is missing"),
        ("SELECT *, 1 AS more FROM source", "has no field 'more'"),
    ):
        with pytest.raises(SchemaError, match=says):
            into_events(landing, tmp_path, transform=transform).check(spark)
        with pytest.raises(SchemaError, match=says):
            into_events(landing, tmp_path, transform=transform).start(spark)
    with pytest.raises(OptionError, match="\"weir-events\" has no option 'flush'"):
        into_events(landing, tmp_path, write={"flush": "true"}).start(spark)
    with pytest.raises(OptionError, match="the target says"):
        into_events(landing, tmp_path, write={"type": "other"})
    with pytest.raises(OptionError, match="clustered by shard"):
        into_events(
            landing, tmp_path, cluster_by_shard=True, source=replace(landing.source(), in_order=False)
        )


def test_a_checkpoint_of_another_store_is_refused(
    spark: SparkSession, landing: Landing, tmp_path: Path
) -> None:
    landing.land(files=1)
    into_events(landing, tmp_path).run(spark)
    landing.land(files=1)
    other = TargetEvents(str(tmp_path / "other"), "order", fields=FIELDS, fsync=False)
    with pytest.raises(PipelineError, match="its checkpoint belongs to another table"):
        into_events(landing, tmp_path, table=other).run(spark)


FILE = """
name = "orders"

[source]
format = "json"
path = "{landing}"
schema = "{schema}"
options = {{ maxFilesPerTrigger = 1 }}
in_order = true

[events]
uri = "{directory}/store"
type = "order"
buckets = 2
[events.fields]
n = "int"
state = ["new", "paid"]
amount = "decimal(9,2)"
on = "date | null"

[stream]
checkpoint = "{directory}/checkpoint"

[write]
lease_wait = 60

[services]
merge = "2s"
index = "off"
compact = "5s"
collect = "5s"
maintain = "3s"

[metrics]
every = "1s"

[spark]
master = "local[2]"
[spark.settings]
"spark.ui.enabled" = false
"spark.driver.host" = "127.0.0.1"
"spark.driver.bindAddress" = "127.0.0.1"
"spark.local.dir" = "{directory}/spark"
"spark.sql.warehouse.dir" = "{directory}/warehouse"
"""


@pytest.fixture
def file(landing: Landing, tmp_path: Path) -> Path:
    path = tmp_path / "orders.toml"
    path.write_text(FILE.format(landing=landing.directory, schema=SCHEMA, directory=tmp_path))
    return path


def test_a_file_describes_it(file: Path, landing: Landing, tmp_path: Path) -> None:
    pipeline = read_pipeline_file(file).pipeline
    assert pipeline.table == TargetEvents(str(tmp_path / "store"), "order", {}, FIELDS, 2)
    assert pipeline.services.maintain == timedelta(seconds=3)
    text = file.read_text()
    for changed, says in (
        (text.replace("[events]", "[table]\nuri='x'\n[events]"), r"both the tables \[table\] and \[events\]"),
        (text.replace('type = "order"', ""), "'type' is missing"),
        (text.replace('n = "int"', 'n = "integer"'), r"orders.toml: events.fields"),
        (text.replace("buckets = 2", 'buckets = "2"'), "'buckets' has to be a whole number"),
        (text.replace("buckets = 2", "bucket = 2"), "unknown key 'bucket'"),
    ):
        file.write_text(changed)
        with pytest.raises(InputError, match=says):
            read_pipeline_file(file)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_each_event_is_there_once_however_often_the_pipeline_is_killed(
    file: Path, landing: Landing, tmp_path: Path
) -> None:
    chance = random.Random(18)
    file.write_text(file.read_text().replace("[stream]", '[stream]\non_bad_record = "quarantine"'))
    landing.land(files=20, bad=3)
    kills = 0
    while kills < 3:
        before = _written(tmp_path)
        process = _running(file)
        # Killed somewhere in the next micro-batches, with services beside them.
        until = before + chance.randrange(1, 200)
        while process.poll() is None and _written(tmp_path) < until:
            time.sleep(chance.random() / 5)
        assert process.poll() is None, (tmp_path / "said").read_text()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    process = _running(file)
    _wait_for(process, tmp_path, events=800, bad=60)
    # What was set aside is put right, and comes once more.
    records = [json.loads(one) for one in _quarantined(tmp_path)]
    assert sorted(one["n"] for one in records) == landing.bad
    landing.put("\n".join(json.dumps({**one, "state": "paid"}) for one in sorted(records, key=_number)))
    landing.numbers["bad"] = landing.bad
    _wait_for(process, tmp_path, events=860, bad=60)
    process.send_signal(signal.SIGTERM)
    assert process.wait(300) == 0, (tmp_path / "said").read_text()
    assert len(_quarantined(tmp_path)) == 60
    assert pipeline_state(read_pipeline_file(file).pipeline).bad_records == 60
    with weir.events.open(tmp_path / "store") as store:
        assert stories(store) == landing.numbers
        assert not store.tables["events"].maintenance.verify().findings
        store.maintain()
        assert stories(store) == landing.numbers


def _running(file: Path) -> subprocess.Popen[bytes]:
    with (file.parent / "said").open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "weir.cli.main", "pipeline", "run", str(file)],
            stdout=said,
            stderr=said,
            start_new_session=True,
        )


def _wait_for(process: subprocess.Popen[bytes], tmp_path: Path, *, events: int, bad: int) -> None:
    deadline = time.monotonic() + 1200
    while _written(tmp_path) < events or len(_quarantined(tmp_path)) < bad:
        assert process.poll() is None, (tmp_path / "said").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.2)


def _number(record: dict[str, Any]) -> int:
    return int(record["n"])


def _quarantined(tmp_path: Path) -> list[str]:
    rows = weir.open(tmp_path / "store-quarantine").scan(["record"]).to_table()
    return [str(one) for one in rows.column("record").to_pylist()]


def _written(tmp_path: Path) -> int:
    with suppress(TableNotFoundError, InputError):
        store = weir.events.open(tmp_path / "store")
        return int(store.execute("QUERY order COUNT").to_table().column("count")[0].as_py())
    return 0
