"""The demo of the event store: a year of real flights as a million events, streamed with kills, and queried.

Every answer is compared with what pandas makes of the CSV.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

import weir
import weir.events
from weir.demo.source import open_flights
from weir.demo.typed_events import UNKNOWN, event_types
from weir.events import EventStore

__all__ = ["main", "run_event_demo"]

_DELAYS = "QUERY departed COUNT, TOTAL delay, MAX delay PER day BY carrier"
_SEQUENCE = "QUERY departed FOLLOWED BY diverted LINKED BY context_id COUNT"
_SHOWS = 10


def run_event_demo(
    path: Path, flights: int | None = None, kills: int = 3, seed: int = 2013
) -> dict[str, bool]:
    """Run the demo, and return which answers equal those of pandas, by question.

    Parameters
    ----------
    path : Path
        Where the store is made.
    flights : int, optional
        Only so many, from the beginning of the year. Default: all.
    kills : int
        How often the process that writes is killed.
    seed : int
        Decides when.
    """
    frame = _frame(flights)
    began = time.monotonic()
    store = weir.events.create(path)
    for name, fields in event_types(sorted(frame["carrier"].unique())).items():
        store.define(name, fields)
    store.remember("delays", _DELAYS)
    batches = -(-_count(frame) // 10_000)
    chosen = sorted(random.Random(seed).sample(range(batches), min(kills, batches)))
    done = -1
    while done < batches - 1:
        done = _write(path, done + 1, flights, [one for one in chosen if one > done], store, batches)
    print(f"{_count(frame):,} events written in {time.monotonic() - began:.0f} s, {len(chosen)} kills")
    store.maintain()
    checks = _checks(store, frame)
    store.close()
    for what, same in checks.items():
        print(f"{'same as pandas' if same else 'NOT as pandas'}: {what}")
    print(f"{time.monotonic() - began:.0f} s in all")
    return checks


def _write(
    path: Path, first: int, flights: int | None, kills: Sequence[int], store: EventStore, batches: int
) -> int:
    """Have a process write until it is killed or done; return the last batch that it acknowledged."""
    command = [sys.executable, "-m", "weir.demo.event_writer", str(path), str(first), str(flights or 0)]
    every = max(batches // _SHOWS, 1)
    done = first - 1
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            done = int(line)
            if done in kills:
                process.kill()
                print(f"killed after batch {done}")
                break
            if done % every == 0:
                shown = store.show("delays").to_table()
                print(f"batch {done}: {sum(shown.column('count').to_pylist()):,} departures remembered")
        process.wait()
    if process.returncode not in (0, -9):
        raise SystemExit(f"the process that writes has failed: {process.returncode}")
    return done


def _frame(flights: int | None) -> pd.DataFrame:
    with open_flights() as stream:
        frame = pd.read_csv(stream, nrows=flights)
    frame["scheduled"] = pd.to_datetime(frame["time_hour"], utc=True) + pd.to_timedelta(
        frame["minute"], "min"
    )
    frame["context"] = frame["tailnum"].fillna(UNKNOWN)
    frame["departed"] = frame["scheduled"] + pd.to_timedelta(frame["dep_delay"], "min")
    return frame


def _departed(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["dep_time"].notna()]


def _landed(frame: pd.DataFrame) -> pd.DataFrame:
    landed = frame[frame["dep_time"].notna() & frame["arr_time"].notna()].copy()

    def minutes(name: str) -> Any:
        return landed[name] // 100 * 60 + landed[name] % 100

    clocks = (minutes("arr_time") - minutes("dep_time")) % (24 * 60)
    landed["at"] = landed["departed"] + pd.to_timedelta(landed["air_time"].fillna(clocks), "min")
    return landed


def _count(frame: pd.DataFrame) -> int:
    cancelled = int(frame["dep_time"].isna().sum())
    return len(frame) + len(_departed(frame)) + len(_landed(frame)) + cancelled


def _checks(store: EventStore, frame: pd.DataFrame) -> dict[str, bool]:
    departed, landed = _departed(frame), _landed(frame)
    diverted = landed[landed["arr_delay"].isna()]
    found: dict[str, bool] = {}
    counts = {
        "scheduled": len(frame),
        "departed": len(departed),
        "arrived": len(landed) - len(diverted),
        "diverted": len(diverted),
        "cancelled": len(frame) - len(departed),
    }
    for name, wanted in counts.items():
        found[f"QUERY {name} COUNT"] = _rows(store, f"QUERY {name} COUNT") == [{"count": wanted}]
    by_day = departed.groupby([departed["departed"].dt.floor("D"), "carrier"])["dep_delay"]
    wanted_delays = [
        (day.to_pydatetime(), carrier, row["count"], row["sum"], row["max"])
        for (day, carrier), row in by_day.agg(["count", "sum", "max"]).sort_index().iterrows()
    ]
    for text in ("SHOW delays", _DELAYS):
        found[text] = [tuple(row.values()) for row in _rows(store, text)] == wanted_delays
    followed = pd.merge_asof(
        departed[["context", "departed"]].sort_values("departed"),
        diverted[["context", "at"]].sort_values("at"),
        left_on="departed",
        right_on="at",
        by="context",
        direction="forward",
    )
    found[_SEQUENCE] = _rows(store, _SEQUENCE) == [{"count": int(followed["at"].notna().sum())}]
    late = departed[(departed["carrier"] == "UA") & (departed["dep_delay"] > 300)]
    text = "QUERY departed WHERE carrier = UA AND delay > 300 COUNT"
    found[text] = _rows(store, text) == [{"count": len(late)}]
    aircraft = str(frame["tailnum"].value_counts().index[0])
    found[f'REPLAY FOR "{aircraft}"'] = _story(store, aircraft) == _wanted_story(frame, aircraft)
    return found


def _rows(store: EventStore, text: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = store.execute(text).to_table().to_pylist()
    return rows


def _story(store: EventStore, aircraft: str) -> list[tuple[Any, str]]:
    rows = store.replay(aircraft).to_table()
    ids = rows.column("event_id").to_pylist()
    if ids != sorted(ids):
        return []
    # Events of a batch come type by type.
    return sorted(
        zip(rows.column("timestamp").to_pylist(), rows.column("event_type").to_pylist(), strict=True)
    )


def _wanted_story(frame: pd.DataFrame, aircraft: str) -> list[tuple[Any, str]]:
    own = frame[frame["context"] == aircraft]
    landed = _landed(own)
    lead = pd.Timedelta(days=1)
    parts = [
        (own["scheduled"] - lead, "scheduled"),
        (_departed(own)["departed"], "departed"),
        (landed[landed["arr_delay"].notna()]["at"], "arrived"),
        (landed[landed["arr_delay"].isna()]["at"], "diverted"),
        (own[own["dep_time"].isna()]["scheduled"], "cancelled"),
    ]
    return sorted((at.to_pydatetime(), name) for times, name in parts for at in times)


def main() -> None:
    """Run the demo as a program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, help="where the store is made, to be kept")
    parser.add_argument("--flights", type=int, help="only the first so many")
    parser.add_argument("--kills", type=int, default=3)
    given = parser.parse_args()
    directory = given.directory or Path(tempfile.mkdtemp(prefix="weir-demo-events-"))
    try:
        checks = run_event_demo(directory / "flights", given.flights, given.kills)
    finally:
        if given.directory is None:
            shutil.rmtree(directory, ignore_errors=True)
    if not all(checks.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
