"""Pages of what is ranked: no document twice and none left out, also where many are equally good."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import weir.namespaces
from weir.namespaces import Aggregate, Documents, Limit, Namespace, Nearest, Order, Query, Words, Write
from weir.namespaces.ranking import Ranking
from weir.service.turbopuffer.schema import parse_schema

ROWS = 60


@pytest.fixture
def docs(tmp_path: Path) -> Iterator[Namespace]:
    """Documents that are all alike, partly merged and partly written over since."""
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        found = namespaces.namespace("docs")
        rows = [{"id": number, "vector": [1.0, 1.0], "text": "walrus"} for number in range(ROWS)]
        declared = parse_schema({"text": {"type": "string", "full_text_search": True}})
        found.write(Write(upserts=Documents.of_rows(rows), declarations=declared))
        found.compact()
        found.write(Write(upserts=Documents.of_rows(rows[20:40])))
        yield found


def ids(docs: Namespace, ranking: Ranking, limit: Limit, offset: int = 0) -> list[int]:
    rows = docs.query(Query(rank_by=ranking, limit=limit, offset=offset)).rows
    assert rows is not None
    found: list[int] = rows.column("id").to_pylist()
    return found


@pytest.mark.covering
@pytest.mark.parametrize("size", [1, 7, 25])
@pytest.mark.parametrize(
    "ranking",
    [
        Nearest("vector", np.array([1, 0], np.float32)),
        Nearest("vector", np.array([1, 0], np.float32), exact=True),
        Words("text", "walrus"),
        Order((("text", False),)),
    ],
    ids=["index", "exact", "words", "order"],
)
def test_every_document_is_on_one_page(docs: Namespace, ranking: Ranking, size: int) -> None:
    pages = [ids(docs, ranking, Limit(size), offset) for offset in range(0, ROWS, size)]
    assert [len(page) for page in pages[:-1]] == [size] * (len(pages) - 1)
    assert sorted(id for page in pages for id in page) == [*range(ROWS)]


def test_pages_go_on_after_the_most_rows_of_one(tmp_path: Path) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        docs = namespaces.namespace("docs")
        docs.write(Write(upserts=Documents(range(10_100), {})))
        by_id = Order((("id", False),))
        assert ids(docs, by_id, Limit(20), 9_990) == [*range(9_990, 10_010)]
        assert ids(docs, by_id, Limit(20), 10_000) == [*range(10_000, 10_020)]


def test_by_what_no_document_has_all_are_alike(docs: Namespace) -> None:
    by_id = Order((("id", False),))
    assert ids(docs, by_id, Limit(10, ("none",), 2)) == [0, 1]
    assert ids(docs, by_id, Limit(10, ("none", "text"), 2)) == [0, 1]
    assert ids(docs, by_id, Limit(10, ("id", "none"), 2)) == [*range(10)]


@pytest.mark.parametrize("attribute", ["text", "none"])
def test_there_is_no_group_of_no_documents(docs: Namespace, attribute: str) -> None:
    docs.write(Write(deletes=range(ROWS)))
    query = Query(aggregates={"rows": Aggregate("count")}, group_by=(attribute,))
    assert docs.query(query).groups == []
