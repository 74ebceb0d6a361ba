"""Matching against brute force, with instants as they are and by their ranks."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from weir.events.query import matching
from weir.events.query.matching import matched

_FAR = [-62_135_596_800_000_000, 0, 253_402_300_799_999_999]


def brute(steps: list[list[tuple[Any, Any, int]]], before: list[bool], within: int | None) -> list[list[int]]:
    found = []
    for first in sorted((one for one in steps[0]), key=lambda one: one[2]):
        row = [first]
        for events, precedes in zip(steps[1:], before, strict=True):
            link, time, _ = row[-1]
            fitting = [
                one
                for one in events
                if None not in (link, time, one[0], one[1])
                and one[0] == link
                and (one[1] < time if precedes else one[1] >= time)
            ]
            if not fitting:
                break
            row.append((max if precedes else min)(fitting, key=lambda one: (one[1], one[2])))
        else:
            if within is None or abs(row[-1][1] - first[1]) <= within:
                found.append([one[2] for one in row])
    return found


@pytest.mark.parametrize("most", [1 << 62, 1])
@pytest.mark.parametrize("far", [False, True])
def test_matches_are_those_of_brute_force(monkeypatch: pytest.MonkeyPatch, most: int, far: bool) -> None:
    monkeypatch.setattr(matching, "_MOST", most)
    random = Random(most % 7 + far)
    for _ in range(60):
        ids = iter(random.sample(range(1000), 60))
        times = [None, *(_FAR if far else []), *range(6)]
        steps = [
            [
                (random.choice([None, "a", "b", "c"]), random.choice(times), next(ids))
                for _ in range(random.randrange(12))
            ]
            for _ in range(random.choice([2, 3]))
        ]
        before = [random.random() < 0.5 for _ in steps[1:]]
        within = random.choice([None, 0, 2])
        rows = matched(
            [pa.chunked_array([pa.array([one[0] for one in events], pa.string())]) for events in steps],
            [
                pa.chunked_array([pa.array([one[1] for one in events], pa.timestamp("us"))])
                for events in steps
            ],
            [pa.chunked_array([pa.array([one[2] for one in events], pa.int64())]) for events in steps],
            before,
            None if within is None else timedelta(microseconds=within),
        )
        found = [
            [steps[at][row][2] for at, row in enumerate(match)]
            for match in zip(*(one.tolist() for one in rows), strict=True)
        ]
        assert found == brute(steps, before, within)
