from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from weir.demo import on_spark
from weir.demo.events import FlightEvents
from weir.demo.expected import ExpectedFlights
from weir.demo.flights import FLIGHT_SCHEMA
from weir.demo.landing import CANCELLED, Landing, as_file
from weir.demo.options import DemoOptions
from weir.demo.verdict import compare


def test_files_in_their_order_leave_the_expected_rows(
    tmp_path: Path, events: FlightEvents, expected: ExpectedFlights
) -> None:
    (tmp_path / "landing").mkdir()
    landing = Landing(tmp_path / "landing", events)
    landing.land_up_to(events.num_batches + 3)
    files = sorted((tmp_path / "landing").iterdir())
    times = [file.stat().st_mtime_ns for file in files]
    # Milliseconds are all that Spark sees of them.
    assert sorted({time // 1_000_000 for time in times}) == [time // 1_000_000 for time in times]
    left: dict[str, dict[str, object]] = {}
    for file in files:
        for row in pq.read_table(file).to_pylist():
            if row.pop(CANCELLED):
                del left[row["id"]]
            else:
                left[row["id"]] = row
    table = pa.Table.from_pylist(list(left.values()), schema=FLIGHT_SCHEMA)
    assert compare("the files", table, expected.rows).identical


def test_files_land_when_they_are_asked_for_and_once(tmp_path: Path, events: FlightEvents) -> None:
    landing = Landing(tmp_path, events)
    landing.land_up_to(1)
    first = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    assert sorted(first) == ["000000.parquet", "000001.parquet"]
    landing.land_up_to(1)
    landing.land_up_to(2)
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in first} == first
    assert len(list(tmp_path.iterdir())) == 3


def test_a_file_has_every_event_of_its_batch(events: FlightEvents) -> None:
    batch = events.batch(3)
    rows = as_file(batch)
    assert rows.num_rows == batch.num_events
    gone = rows.filter(rows.column(CANCELLED))
    assert gone.column("id").to_pylist() == batch.deletes.to_pylist()
    assert gone.column("carrier").null_count == gone.num_rows


class NotStartedError(Exception):
    pass


def test_the_directory_is_there_before_a_driver_looks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver may be ready before the first file is: Spark ends where it finds no directory."""
    found: list[bool] = []

    def started(*_: object, **__: object) -> None:
        found.append((tmp_path / "landing").is_dir())
        raise NotStartedError

    monkeypatch.setattr(on_spark, "ListenedProcess", started)
    with pytest.raises(NotStartedError):
        on_spark.run_spark_demo(DemoOptions(directory=tmp_path, flights=400, fsync=False))
    assert found == [True]
