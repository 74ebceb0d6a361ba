"""Filters are two-valued: a document without an attribute is in a comparison's complement, and only there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import weir.namespaces
from weir.namespaces import Documents, Limit, Order, Query, Write
from weir.namespaces.filter.expression import And, Comparison, Filter, Not, Operator


@pytest.mark.parametrize("attribute", ["s", "t"])
@pytest.mark.parametrize("operator", [Operator.ALL_TOKENS, Operator.TOKEN_SEQUENCE, Operator.ANY_TOKEN])
@pytest.mark.parametrize("words", ["", "sea", "--"])
def test_a_document_without_a_text_has_no_words(
    tmp_path: Path, attribute: str, operator: Operator, words: str
) -> None:
    documents: list[dict[str, Any]] = [
        {"id": 1, "s": "sea lion", "t": ["sea", "lion"], "n": 1},
        {"id": 2, "s": "walrus", "t": ["walrus"], "n": 1},
        {"id": 3, "s": None, "t": None, "n": 1},
    ]
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        namespace = namespaces.namespace("animals")
        namespace.write(Write(upserts=Documents.of_rows(documents)))

        def found(filter: Filter) -> list[int]:
            query = Query(rank_by=Order((("id", False),)), filter=filter, limit=Limit(total=10))
            rows = namespace.query(query).rows
            assert rows is not None
            return [int(id) for id in rows.column("id").to_pylist()]

        one = Comparison(attribute, operator, words)
        wanted = [1] if words == "sea" else [] if operator is Operator.ANY_TOKEN else [1, 2]
        assert found(one) == wanted
        assert found(Not(one)) == [id for id in (1, 2, 3) if id not in wanted]
        assert found(And((Comparison("n", Operator.EQ, 1), one))) == wanted
