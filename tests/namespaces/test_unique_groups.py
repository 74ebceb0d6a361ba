"""Numbers about groups by the elements of lists, beside plain Python."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

import pyarrow as pa
import pytest

from weir.errors import InputError
from weir.namespaces import Aggregate, unique_groups
from weir.namespaces.unique_groups import groups_of


@pytest.mark.parametrize("seed", range(3))
def test_groups_are_those_of_plain_python(seed: int) -> None:
    chance = random.Random(seed)

    def some_list() -> Any:
        return chance.choice([None, [chance.choice("abc") for _ in range(chance.randrange(4))], [None, "a"]])

    rows: list[dict[str, Any]] = [
        {
            "k": chance.choice(["x", "y", None]),
            "one": some_list(),
            "two": some_list(),
            "n": chance.choice([1, 2, None]),
        }
        for _ in range(60)
    ]
    count: Counter[tuple[str | None, ...]] = Counter()
    held: defaultdict[tuple[str | None, ...], list[int]] = defaultdict(list)
    for row in rows:
        for one in {*(row["one"] or [])} - {None}:
            for two in {*(row["two"] or [])} - {None}:
                count[row["k"], one, two] += 1
                held[row["k"], one, two] += [] if row["n"] is None else [row["n"]]
    lists = pa.list_(pa.string())
    schema = pa.schema([("k", pa.string()), ("one", lists), ("two", lists), ("n", pa.int64())])
    found = groups_of(
        pa.Table.from_pylist(rows, schema),
        ["k", "1", "2"],
        {"1": "one", "2": "two"},
        [(Aggregate("count"), None), (Aggregate("sum", "n"), "n"), (Aggregate("count", "n"), "n")],
        1_000,
    )
    told = [tuple(row.values()) for row in found.to_pylist()]
    keys = sorted(count, key=lambda key: [(one is None, one or "") for one in key])
    assert told == [(*key, count[key], sum(held[key]), len(held[key])) for key in keys]


def test_more_elements_than_fit_in_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unique_groups, "_MOST_ELEMENTS", 50)
    rows = pa.table({"one": [list(range(10))] * 5, "two": [list(range(10))] * 5})
    one = {"1": "one"}
    assert groups_of(rows, ["1"], one, [(Aggregate("count"), None)], 9).num_rows == 9
    with pytest.raises(InputError, match="elements"):
        groups_of(rows, ["1", "2"], {**one, "2": "two"}, [(Aggregate("count"), None)], 9)
