"""Conditional upserts: decided by the table in the order of its log, or here, they are the same."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest

import weir.namespaces
from weir.errors import InputError
from weir.namespaces import Documents, Write
from weir.namespaces.filter.expression import And, Comparison, Filter, NewValue, Not, Operator, Or

_ATOMS = [
    *(Comparison("v", Operator.LT, NewValue("v")), Comparison("v", Operator.EQ, NewValue("v"))),
    *(
        Comparison("v", Operator.EQ, None),
        Comparison("v", Operator.GTE, 2),
        Comparison("f", Operator.LT, 2.5),
    ),
    *(Comparison("s", Operator.GLOB, "*a*"), Comparison("s", Operator.IN, ("ab", None))),
    *(Comparison("s", Operator.EQ, NewValue("s")), Comparison("s", Operator.FUZZY, "q'", edits=1)),
    *(Comparison("t", Operator.CONTAINS, "y"), Comparison("w.x", Operator.LT, 5)),
    *(Comparison("id", Operator.EQ, None), Comparison("id", Operator.GT, 10)),
    *(Comparison("nope", Operator.EQ, None), Comparison("nope", Operator.LT, NewValue("v"))),
    Comparison("v", Operator.LT, NewValue("nope")),
]


def a_filter(draw: random.Random, depth: int) -> Filter:
    kind = draw.random()
    if depth == 0 or kind < 0.4:
        return draw.choice(_ATOMS)
    if kind < 0.6:
        return Not(a_filter(draw, depth - 1))
    parts = tuple(a_filter(draw, depth - 1) for _ in range(draw.randint(0, 3)))
    return And(parts) if draw.random() < 0.5 else Or(parts)


def documents(draw: random.Random, ids: Any) -> Documents:
    return Documents.of_rows(
        [
            {
                "id": id,
                "v": draw.choice([None, 1, 2, 3]),
                "s": draw.choice([None, "ab", "ca", "q'"]),
                "t": draw.choice([None, ["x"], ["y", "x"]]),
                "f": draw.choice([None, 1.5]),
                "w.x": id % 9,
            }
            for id in ids
        ]
    )


def test_both_ways_of_deciding_come_to_the_same(tmp_path: Path) -> None:
    draw = random.Random(5)
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        by_table, here = namespaces.namespace("by-table"), namespaces.namespace("here")
        # A table that has a column "new" cannot be asked for what is new.
        for namespace, name in ((by_table, "newer"), (here, "new")):
            namespace.write(Write(upserts=Documents.of_rows([{"id": 99, name: 1}])))
            namespace.write(Write(upserts=documents(random.Random(6), range(30))))
        for _ in range(60):
            write = Write(
                upserts=documents(draw, draw.sample(range(45), 6)),
                upsert_condition=a_filter(draw, 3),
                return_ids=True,
            )
            one, other = by_table.write(write), here.write(write)
            assert (one.upserted, one.upserted_ids) == (other.upserted, other.upserted_ids), write
        columns = ["v", "s", "t", "f", "w.x"]
        found = [namespace.get(range(45), columns).sort_by("id") for namespace in (by_table, here)]
        assert found[0].equals(found[1])
        assert found[0].num_rows > 30
        bad = Comparison("s", Operator.REGEX, "(")
        for namespace in (by_table, here):
            with pytest.raises(InputError, match="a pattern in it is not valid"):
                namespace.write(Write(upserts=documents(draw, [1]), upsert_condition=bad))


def test_of_writes_at_once_each_sees_what_the_others_did(tmp_path: Path) -> None:
    """Every thread counts up; no step is lost or done twice."""
    steps: list[int] = []
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        namespace = namespaces.namespace("counter")
        namespace.write(Write(upserts=Documents.of_rows([{"id": 1, "n": 0}])))

        def count() -> None:
            for _ in range(25):
                [known] = namespace.get([1], ["n"])["n"].to_pylist()
                written = namespace.write(
                    Write(
                        upserts=Documents.of_rows([{"id": 1, "n": known + 1}]),
                        upsert_condition=Comparison("n", Operator.EQ, known),
                    )
                )
                if written.upserted:
                    steps.append(known + 1)

        threads = [threading.Thread(target=count) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert namespace.get([1], ["n"])["n"].to_pylist() == [len(steps)]
    assert sorted(steps) == list(range(1, len(steps) + 1))
