"""Filters over documents in the log, merged, and both, beside plain Python."""

from __future__ import annotations

import operator
import random
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weir.namespaces
from weir.namespaces import Documents, Namespace, Nearest, Order, Query, Write
from weir.namespaces.query import Aggregate, Limit
from weir.service.turbopuffer.filters import parse_filter
from weir.service.turbopuffer.schema import parse_schema

_VALUES: dict[str, list[Any]] = {
    "string": [
        "",
        "a",
        "A",
        "walrus tusk",
        "Walrus\nTusk",
        "it's",
        "100%_x",
        "a\\b",
        "[x]",
        "É",
        "sea*lion",
        "x`y",
    ],
    "int": [-(2**63), -1, 0, 1, 7, 2**53 + 1, 2**63 - 1],
    "uint": [0, 1, 2**63, 2**64 - 1],
    "float": [-1e300, -1.5, -0.0, 0.0, 0.5, 1e300],
    "bool": [False, True],
    "datetime": ["2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00", "1969-12-31T23:59:59.5Z"],
    "uuid": [f"00000000-0000-0000-0000-00000000000{digit}" for digit in range(3)],
}
_SCHEMA = {name: name for name in _VALUES} | {f"[]{name}": f"[]{name}" for name in _VALUES}
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "Lt": operator.lt,
    "Lte": operator.le,
    "Gt": operator.gt,
    "Gte": operator.ge,
}
_PATTERNS = {
    "Glob": {
        "*": r".*",
        "w*": r"w.*",
        "?": r".",
        "a?b": r"a.b",
        "*us*tusk": r".*us.*tusk",
        "[!a]*": r"[^a].*",
    },
    "IGlob": {"*K": r".*k", "WALRUS*": r"walrus.*", "é": "é"},
}
_REGEXES = ["^a", "tusk$", "a.b", "W"]
_WORDS = ["walrus", "TUSK walrus", "a", "lion sea"]


def a_document(draw: random.Random, id: int) -> dict[str, Any]:
    document: dict[str, Any] = {"id": id, "vector": [draw.random(), draw.random()]}
    for kind, values in _VALUES.items():
        if draw.random() < 0.7:
            document[kind] = draw.choice(values)
        if draw.random() < 0.7:
            document[f"[]{kind}"] = draw.choices(values, k=draw.randrange(4))
    return document


def a_filter(draw: random.Random, depth: int) -> list[Any]:
    if depth and draw.random() < 0.45:
        kind = draw.choice(["And", "Or", "Not"])
        if kind == "Not":
            return [kind, a_filter(draw, depth - 1)]
        return [kind, [a_filter(draw, depth - 1) for _ in range(draw.randrange(4))]]
    if draw.random() < 0.05:
        asked: list[list[Any]] = [["Eq", None], ["NotEq", 3], ["Lt", 3], ["In", [1, None]]]
        return ["unheard-of", *draw.choice(asked)]
    kind = draw.choice([*_VALUES])
    values = _VALUES[kind]
    ordered: list[str] = [] if kind == "bool" else [*_ORDER]
    if draw.random() < 0.4:
        name = draw.choice(["Eq", "NotEq", "Contains", "NotContains", "ContainsAny", "NotContainsAny"])
        name = draw.choice([name, *[f"Any{one}" for one in ordered]])
        several = name in ("Eq", "NotEq", "ContainsAny", "NotContainsAny")
        value = draw.choices(values, k=draw.randrange(2)) if several else draw.choice(values)
        return [f"[]{kind}", name, None if name in ("Eq", "NotEq") and draw.random() < 0.2 else value]
    if kind == "string" and draw.random() < 0.6:
        name = draw.choice([*_PATTERNS, "NotGlob", "Regex", "AllTokens", "AnyToken", "TokenSequence"])
        if name.endswith("Glob"):
            return [kind, name, draw.choice([*_PATTERNS[name.removeprefix("Not")]])]
        if name == "Regex":
            return [kind, name, draw.choice(_REGEXES)]
        return [kind, f"Contains{name}", draw.choice(_WORDS)]
    name = draw.choice(["Eq", "NotEq", "In", "NotIn", *ordered])
    if name in ("In", "NotIn"):
        return [kind, name, draw.choices([None, *values], k=draw.randrange(4))]
    return [kind, name, None if name in ("Eq", "NotEq") and draw.random() < 0.2 else draw.choice(values)]


def words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def takes(filter: list[Any], document: dict[str, Any]) -> bool:
    """What a filter means, in plain Python."""
    if filter[0] == "Not":
        return not takes(filter[1], document)
    if filter[0] in ("And", "Or"):
        return (all if filter[0] == "And" else any)(takes(part, document) for part in filter[1])
    attribute, name, value = filter
    if name.startswith("Not"):
        return not takes([attribute, name.removeprefix("Not"), value], document)
    known = document.get(attribute)
    if known is None:
        return value is None if name == "Eq" else name == "In" and None in value
    if value is None:
        return False
    if attribute.endswith("datetime"):
        known, value = _moments(known), _moments(value)
    return _compares(name, known, value)


def _moments(value: Any) -> Any:
    if isinstance(value, list):
        return [one if one is None else _moments(one) for one in value]
    return datetime.fromisoformat(value)


def _compares(name: str, known: Any, value: Any) -> bool:
    if name == "Eq":
        return bool(known == value)
    if name == "In":
        return known in value
    if name == "Contains":
        return value in known
    if name == "ContainsAny":
        return any(one in value for one in known)
    if name in _ORDER:
        return _ORDER[name](known, value)
    if name.startswith("Any"):
        return any(_ORDER[name.removeprefix("Any")](one, value) for one in known)
    if name in _PATTERNS:
        flags = re.DOTALL | (re.IGNORECASE if name == "IGlob" else re.NOFLAG)
        return re.fullmatch(_PATTERNS[name][value], known, flags) is not None
    if name == "Regex":
        return re.search(value, known) is not None
    had, asked = words(known), words(value)
    if name == "ContainsAllTokens":
        return {*asked} <= {*had}
    if name == "ContainsAnyToken":
        return bool({*asked} & {*had})
    return any(had[at : at + len(asked)] == asked for at in range(len(had)))


def check(namespace: Namespace, draw: random.Random, documents: dict[int, dict[str, Any]]) -> None:
    everything = Limit(1000)
    for _ in range(40):
        asked = a_filter(draw, 3)
        filter = parse_filter(asked)
        expected = sorted(id for id, document in documents.items() if takes(asked, document))
        ordered = namespace.query(Query(rank_by=Order((("id", False),)), filter=filter, limit=everything))
        nearest = Nearest("vector", np.full(2, 0.5, np.float32), draw.random() < 0.5)
        ranked = namespace.query(Query(rank_by=nearest, filter=filter, limit=everything))
        counted = namespace.query(Query(aggregates={"rows": Aggregate("count")}, filter=filter))
        assert ordered.rows is not None
        assert ranked.rows is not None
        assert ordered.rows["id"].to_pylist() == expected, asked
        assert sorted(ranked.rows["id"].to_pylist()) == expected, asked
        assert counted.aggregates == {"rows": len(expected)}, asked


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(2))
def test_filters_take_what_plain_python_does(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        namespace = namespaces.namespace("documents")
        documents = {id: a_document(draw, id) for id in range(100)}
        declared = parse_schema(_SCHEMA)
        namespace.write(Write(upserts=Documents.of_rows([*documents.values()]), declarations=declared))
        check(namespace, draw, documents)
        namespace.compact()
        check(namespace, draw, documents)
        newer = {id: a_document(draw, id) for id in draw.sample(range(130), 30)}
        gone = [id for id in documents if id not in newer][:10]
        namespace.write(Write(upserts=Documents.of_rows([*newer.values()]), deletes=gone))
        documents = {id: one for id, one in (documents | newer).items() if id not in gone}
        check(namespace, draw, documents)


def test_attributes_may_be_called_as_what_lance_has_for_itself(tmp_path: Path) -> None:
    names = ["_rowid", "_rowaddr", "it's _rowid", "_row_created_at_version", "_score"]
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        namespace = namespaces.namespace("documents")
        rows = [{"id": id, "vector": [1.0, id], **dict.fromkeys(names, id)} for id in (1, 2)]
        namespace.write(Write(upserts=Documents.of_rows(rows)))
        nearest = Nearest("vector", np.ones(2, np.float32), False)
        for name in names:
            query = Query(rank_by=nearest, filter=parse_filter([name, "Gte", 2]), include=(name,))
            found = namespace.query(query).rows
            assert found is not None
            assert found.select(["id", name]).to_pylist() == [{"id": 2, name: 2}]
