"""Orders, groups and numbers of documents in the log, merged, and both, beside plain Python."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import weir.namespaces
from tests.service.test_filters import a_document, a_filter, takes
from weir.namespaces import Answer, Documents, Namespace, Write
from weir.service.turbopuffer.queries import parse_query
from weir.service.turbopuffer.schema import parse_schema

_KINDS = ("string", "int", "uint", "float", "bool", "datetime", "uuid")
_SCHEMA = {name: name for name in _KINDS} | {f"[]{name}": f"[]{name}" for name in _KINDS}

Document = dict[str, Any]


def comparable(name: str, value: Any) -> Any:
    """Return a value in the order of its kind."""
    if isinstance(value, list):
        return [comparable(name, one) for one in value]
    if value is None:
        return None
    if name.endswith("datetime"):
        return datetime.fromisoformat(value)
    return value.encode() if isinstance(value, str) else value


def in_order(documents: list[Document], by: list[tuple[str, bool]]) -> list[Document]:
    """Return documents in an order, equal ones by their ids, and what is missing last."""
    ranked = documents
    if not any(name == "id" for name, _ in by):
        by = [*by, ("id", False)]
    for name, descending in reversed(by):
        there = [one for one in ranked if one.get(name) is not None]
        missing = [one for one in ranked if one.get(name) is None]
        # Sorting backwards keeps equal ones as they are.
        there.sort(key=lambda one, name=name: comparable(name, one[name]), reverse=descending)  # type: ignore[misc]
        ranked = there + missing
    return ranked


def key_of(document: Document, names: list[str]) -> tuple[Any, ...]:
    found = [comparable(name, document.get(name)) for name in names]
    return tuple(tuple(one) if isinstance(one, list) else one for one in found)


def check_orders(ask: Callable[..., Answer], draw: random.Random, documents: list[Document]) -> None:
    for _ in range(25):
        names = draw.sample(["id", *_KINDS], draw.randint(1, 3))
        by = [(name, draw.random() < 0.5) for name in names]
        filter = a_filter(draw, 1)
        taken = in_order([one for one in documents if takes(filter, one)], by)
        offset, total = draw.choice([0, 0, 3, 50]), draw.choice([1, 5, 40, 1000])
        rank_by = [[name, "desc" if descending else "asc"] for name, descending in by]
        limit: dict[str, Any] = {"total": total}
        if draw.random() < 0.4:
            per, most = draw.sample(["unheard-of", *_SCHEMA], draw.randint(1, 2)), draw.randint(1, 3)
            limit["per"] = {"attributes": per, "limit": most}
            seen: dict[Any, int] = {}
            kept = []
            for one in taken:
                key = key_of(one, per)
                seen[key] = seen.get(key, 0) + 1
                kept += [one] if seen[key] <= most else []
            taken = kept
        asked = {"rank_by": rank_by[0] if len(by) == 1 else rank_by, "filters": filter, "limit": limit}
        rows = ask(**asked, offset=offset).rows
        assert rows is not None
        assert rows["id"].to_pylist() == [one["id"] for one in taken[offset : offset + total]], asked


def check_numbers(ask: Callable[..., Answer], draw: random.Random, documents: list[Document]) -> None:
    for _ in range(25):
        filter = a_filter(draw, 1)
        taken = [one for one in documents if takes(filter, one)]
        aggregates: dict[str, Any] = {
            "all": ["Count"],
            "some": ["Count", draw.choice([*_SCHEMA])],
            "sum": ["Sum", draw.choice(["int", "uint"])],
        }

        def numbers_of(group: list[Document], aggregates: dict[str, Any] = aggregates) -> dict[str, Any]:
            counted, added = aggregates["some"][1], aggregates["sum"][1]
            return {
                "all": len(group),
                "some": sum(one.get(counted) is not None for one in group),
                "sum": sum(one.get(added) or 0 for one in group),
            }

        asked = {"aggregate_by": aggregates, "filters": filter}
        assert ask(**asked).aggregates == numbers_of(taken), asked
        names = draw.sample(["string", "bool", "int", "uint", "uuid", "unheard-of"], draw.randint(1, 2))
        groups: dict[Any, list[Document]] = {}
        for one in taken:
            groups.setdefault(key_of(one, names), []).append(one)
        found = ask(**asked, group_by=names, top_k=1000).groups
        assert found is not None
        told = [(key_of(one, names), {label: one[label] for label in aggregates}) for one in found]
        assert dict(told) == {key: numbers_of(group) for key, group in groups.items()}, asked
        assert len(told) == len(groups)
        # In the order of their keys, and what is missing last.
        order = [
            tuple((value is None, value if value is not None else 0) for value in key) for key, _ in told
        ]
        assert order == sorted(order), (asked, names)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(2))
def test_orders_and_numbers_are_those_of_plain_python(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        namespace: Namespace = namespaces.namespace("documents")
        documents = {id: a_document(draw, id) for id in range(100)}

        def ask(**body: Any) -> Answer:
            return namespace.query(parse_query(body, 8))

        def check() -> None:
            for checked in (check_orders, check_numbers):
                checked(ask, draw, [*documents.values()])

        declared = parse_schema(_SCHEMA)
        namespace.write(Write(upserts=Documents.of_rows([*documents.values()]), declarations=declared))
        check()
        namespace.compact()
        check()
        newer = {id: a_document(draw, id) for id in draw.sample(range(130), 30)}
        gone = [id for id in documents if id not in newer][:10]
        namespace.write(Write(upserts=Documents.of_rows([*newer.values()]), deletes=gone))
        documents = {id: one for id, one in (documents | newer).items() if id not in gone}
        check()
