"""Searches that cannot be: named errors that say what helps, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from lance.query import MatchQuery as LanceMatchQuery

import weir
from weir.errors import FilterError, InputError, OptionError, QueryError, SchemaError, WeirError
from weir.search.vector.query import MAX_K, MAX_QUERIES

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("text", pa.string()),
        ("title", pa.string()),
        ("vector", pa.list_(pa.float32(), 3)),
        ("half", pa.list_(pa.float16(), 2)),
        ("bits", pa.list_(pa.uint8(), 2)),
        ("loose", pa.list_(pa.float32())),
    ]
)
V = [1.0, 2.0, 3.0]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> weir.Table:
    table = weir.create(tmp_path_factory.mktemp("t") / "t", SCHEMA, primary_key="id", fsync=False)
    lance.dataset(table.uri).create_scalar_index("text", "INVERTED", with_position=False)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "text": "late departures", "vector": V, "half": [1, 2], "bits": [1, 2]}])
    return table


BAD_VECTORS: dict[str, tuple[Callable[[Any], Any], type[WeirError], str]] = {
    "too short": (lambda t: t.search(V[:2], column="vector"), QueryError, "dimension 3.*shape 2"),
    "too long": (lambda t: t.search([*V, 1.0], column="vector"), QueryError, "dimension 3.*shape 4"),
    "a number": (lambda t: t.search(1.0, column="vector"), QueryError, "single number"),
    "no vectors": (lambda t: t.search(np.zeros((0, 3)), column="vector"), QueryError, "0 x 3"),
    "a cube": (lambda t: t.search(np.zeros((1, 1, 3)), column="vector"), QueryError, "1 x 1 x 3"),
    "ragged": (lambda t: t.search([V, V[:1]], column="vector"), QueryError, "not a vector of numbers"),
    "text": (lambda t: t.search("abc", column="vector"), QueryError, "not a vector of numbers"),
    "None": (lambda t: t.search(None, column="vector"), QueryError, "not a vector of numbers"),
    "null in it": (lambda t: t.search([1.0, None, 2.0], column="vector"), QueryError, "not a vector"),
    "NaN": (lambda t: t.search([1.0, float("nan"), 2.0], column="vector"), QueryError, "element 1.*nan"),
    "infinite": (lambda t: t.search([1.0, 2.0, float("inf")], column="vector"), QueryError, "element 2.*inf"),
    "beyond float32": (lambda t: t.search([1e300, 2.0, 1.0], column="vector"), QueryError, "element 0"),
    "beyond float16": (lambda t: t.search([1.0, 1e6], column="half"), QueryError, "element 1.*halffloat"),
    "beyond uint8": (lambda t: t.search([1, 256], column="bits"), QueryError, "0 to 255"),
    "no direction": (
        lambda t: t.search([0, 0, 0], column="vector", metric="cosine").to_table(),
        QueryError,
        "no direction",
    ),
    "k of 0": (lambda t: t.search(V, 0, column="vector"), QueryError, "a whole number from 1 to 10,000"),
    "k below 0": (lambda t: t.search(V, -1, column="vector"), QueryError, "got -1"),
    "k above the limit": (lambda t: t.search(V, MAX_K + 1, column="vector"), QueryError, "got 10001"),
    "k as a float": (lambda t: t.search(V, 1.5, column="vector"), QueryError, "got 1.5"),
    "k as a truth": (lambda t: t.search(V, True, column="vector"), QueryError, "got True"),
    "too many queries": (
        lambda t: t.search(np.zeros((MAX_QUERIES + 1, 3)), column="vector"),
        QueryError,
        "1,001 query vectors",
    ),
    "which column": (lambda t: t.search(V), QueryError, "3 vector columns.*vector, half, bits"),
    "unknown column": (lambda t: t.search(V, column="vectr"), QueryError, "no column 'vectr'.*vector, half"),
    "a column without vectors": (lambda t: t.search(V, column="text"), QueryError, "not a vector"),
    "a list of any size": (lambda t: t.search(V, column="loose"), QueryError, "fixed size"),
    "unknown metric": (lambda t: t.search(V, column="vector", metric="l1"), QueryError, "l2, cosine, dot"),
    "metric of other types": (lambda t: t.search([1, 2], column="bits", metric="l2"), QueryError, "hamming"),
    "nprobes of 0": (lambda t: t.search(V, column="vector", nprobes=0), QueryError, "nprobes"),
    "refine below 0": (lambda t: t.search(V, column="vector", refine=-1), QueryError, "refine"),
    "unknown result column": (lambda t: t.search(V, column="vector", columns=["x"]), SchemaError, "'x'"),
    "filter": (lambda t: t.search(V, column="vector", filter="x > 1"), FilterError, "x > 1"),
    "consistency": (lambda t: t.search(V, column="vector", consistency="soon"), OptionError, "soon"),
    "token": (lambda t: t.search(V, column="vector", at="nonsense"), InputError, "token"),
}

BAD_TEXTS: dict[str, tuple[Callable[[Any], Any], type[WeirError], str]] = {
    "empty": (lambda t: t.search_text("", column="text"), QueryError, "empty"),
    "blank": (lambda t: t.search_text(" \n", column="text"), QueryError, "empty"),
    "stop words": (lambda t: t.search_text("the and", column="text").to_table(), QueryError, "no word"),
    "signs": (lambda t: t.search_text("?!", column="text").to_table(), QueryError, "no word"),
    "a number": (lambda t: t.search_text(7, column="text"), QueryError, "not a text query.*MatchQuery"),
    "half a character": (lambda t: t.search_text("\ud800", column="text"), QueryError, "not Unicode"),
    "Lance's own query": (
        lambda t: t.search_text(LanceMatchQuery("late", "text")),
        QueryError,
        "weir.MatchQuery",
    ),
    "unknown column": (lambda t: t.search_text("late", column="txt"), QueryError, "no column 'txt'"),
    "unknown column inside": (
        lambda t: t.search_text(weir.BooleanQuery([weir.MatchQuery("late", "txt")]), column="text"),
        QueryError,
        "no column 'txt'",
    ),
    "a column without text": (lambda t: t.search_text("late", column="vector"), QueryError, "not text"),
    "no index": (
        lambda t: t.search_text("late", column="title").to_table(),
        QueryError,
        r'indexes.create\("title", "INVERTED"\)',
    ),
    "no positions": (
        lambda t: t.search_text(weir.PhraseQuery("late departures"), column="text").to_table(),
        QueryError,
        r'indexes.create\("text", "INVERTED", with_position=True\)',
    ),
    "k of 0": (lambda t: t.search_text("late", 0, column="text"), QueryError, "from 1 to 10,000"),
    "boolean of nothing": (lambda t: weir.BooleanQuery(must_not=["late"]), QueryError, "what to find"),
    "boolean of text": (lambda t: weir.BooleanQuery("late"), QueryError, "list of queries"),
    "operator": (lambda t: weir.MatchQuery("late", operator="xor"), QueryError, "'or' or 'and'"),
    "fuzziness": (lambda t: weir.MatchQuery("late", fuzziness=3), QueryError, "from 0 to 2"),
    "boost": (lambda t: weir.MatchQuery("late", boost=float("nan")), QueryError, "boost"),
    "negative boost": (lambda t: weir.BoostQuery("late", "on", -1.0), QueryError, "negative_boost"),
    "slop": (lambda t: weir.PhraseQuery("late", slop=-1), QueryError, "slop"),
    "no columns": (lambda t: weir.MultiMatchQuery("late", ()), QueryError, "list of names"),
    "boosts": (lambda t: weir.MultiMatchQuery("late", ("text",), (1.0, 2.0)), QueryError, "2 boosts for 1"),
    "a column twice": (lambda t: weir.MultiMatchQuery("late", ("text", "text")), QueryError, "twice"),
    "filter": (lambda t: t.search_text("late", column="text", filter="x > 1"), FilterError, "x > 1"),
    "result column": (lambda t: t.search_text("late", column="text", columns=[]), SchemaError, "no column"),
    "fusion": (lambda t: both(t, fusion="best"), QueryError, "'rrf' or 'weighted'"),
    "weights": (lambda t: both(t, weights=(1.0,)), QueryError, "two numbers"),
    "negative weight": (lambda t: both(t, weights=(1.0, -1.0)), QueryError, "at least 0"),
    "no weight": (lambda t: both(t, weights=(0.0, 0.0)), QueryError, "more than 0"),
    "rrf_k": (lambda t: both(t, rrf_k=-1), QueryError, "rrf_k"),
    "candidates": (lambda t: both(t, candidates=3), QueryError, "from k, which is 10"),
    "a batch by both": (
        lambda t: t.search_hybrid([V, V], "late", vector_column="vector", text_column="text"),
        QueryError,
        "one query vector",
    ),
}


def both(table: weir.Table, **options: Any) -> Any:
    return table.search_hybrid(V, "late", vector_column="vector", text_column="text", **options)


@pytest.mark.parametrize("what", [*BAD_VECTORS, *BAD_TEXTS])
def test_bad_searches_are_named(table: weir.Table, what: str) -> None:
    for cases in (BAD_VECTORS, BAD_TEXTS):
        if what in cases:
            search, error, said = cases[what]
            before = set(Path(table.uri).rglob("*"))
            with pytest.raises(error, match=f"(?s){said}"):
                search(table)
            assert set(Path(table.uri).rglob("*")) == before


def test_a_column_named_like_one_that_is_added_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("_query_index", pa.int64()), ("v", pa.list_(pa.float32(), 2))])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    with pytest.raises(QueryError, match="'_query_index'"):
        table.search([[1.0, 2.0]]).to_table()
    assert table.search([[1.0, 2.0]], columns=["id"]).to_table().num_rows == 0
    assert table.search([1.0, 2.0]).to_table().num_rows == 0


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=8,
)


@given(vector=ANYTHING, k=ANYTHING, column=ANYTHING, metric=ANYTHING, nprobes=ANYTHING)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=2 * settings().max_examples
)
def test_nothing_but_named_errors_by_vector(
    table: weir.Table, vector: Any, k: Any, column: Any, metric: Any, nprobes: Any
) -> None:
    for options in ({"k": k}, {"column": column}, {"metric": metric}, {"nprobes": nprobes}, {}):
        used = {"column": "vector", **options}
        for asked in (vector, V):
            try:
                found = table.search(asked, **used).to_table()
            except InputError:
                continue
            assert found.num_rows <= 1


@given(query=ANYTHING, k=ANYTHING, column=ANYTHING)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=2 * settings().max_examples
)
def test_nothing_but_named_errors_by_text(table: weir.Table, query: Any, k: Any, column: Any) -> None:
    for asked, options in ((query, {}), ("late", {"k": k}), ("late", {"column": column})):
        try:
            found = table.search_text(asked, **{"column": "text", **options}).to_table()
        except InputError:
            continue
        assert found.num_rows <= 1


def test_a_text_query_without_a_column_means_the_one_with_an_index(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("title", pa.string()), ("body", pa.string())])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    opened_before = weir.open(tmp_path / "t")
    with table.writer() as writer:
        writer.upsert([{"id": 1, "title": "late", "body": "early"}, {"id": 2, "title": "x", "body": "late"}])
        with pytest.raises(QueryError, match=r"2 text columns.*title, body"):
            table.search_text("late")
        table.indexes.create("body", "INVERTED")
        for one in (table, opened_before):
            assert one.search_text("late").to_table()["id"].to_pylist() == [2]
            assert one.search_text(weir.MatchQuery("late")).to_table()["id"].to_pylist() == [2]
        table.indexes.create("title", "INVERTED")
        with pytest.raises(QueryError, match=r"2 text columns.*title, body"):
            table.search_text("late")
        assert table.search_text("late", column="title").to_table()["id"].to_pylist() == [1]
