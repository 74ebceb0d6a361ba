"""Searches at every stage of a table's life, against brute force over a dict.

Without a vector index every distance is exact, and so is every score at any time: whatever is in the log, in
generations, merged and not indexed yet, merged and indexed, deleted or compacted.
"""

from __future__ import annotations

import shutil
import tempfile
from typing import Any

import hypothesis.strategies as st
import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.search.search_model import check_ranking, nearest, text_scores

import weir
from weir.engine.context import default_context
from weir.format.snapshot_token import SnapshotToken
from weir.search.text.query import TextQuery

Key = tuple[Any, ...]

KEYS: dict[str, tuple[list[pa.Field], st.SearchStrategy[Key]]] = {
    "int64": ([pa.field("id", pa.int64(), nullable=False)], st.tuples(st.integers(0, 25))),
    "string": (
        [pa.field("id", pa.string(), nullable=False)],
        st.tuples(st.sampled_from([f"{letter}'{n}" for letter in "abé" for n in range(8)])),
    ),
    "composite": (
        [pa.field("site", pa.string(), nullable=False), pa.field("id", pa.int32(), nullable=False)],
        st.tuples(st.sampled_from(["", "a", "b'"]), st.integers(0, 7)),
    ),
}

WORDS = st.sampled_from(["ant", "ant", "ant", "bee", "bee", "cat", "cart", "dog"])
TEXTS = st.none() | st.lists(WORDS, max_size=7).map(" ".join)
VECTORS = st.none() | st.lists(st.integers(-3, 3).map(float), min_size=3, max_size=3)
ROWS = st.fixed_dictionaries(
    {"text": TEXTS, "note": TEXTS, "vector": VECTORS, "number": st.none() | st.integers(0, 3)}
)

PHRASES = st.lists(WORDS, min_size=1, max_size=3).map(" ".join)
COLUMNS = st.sampled_from([None, "text", "note"])
FACTORS = st.sampled_from([0.5, 1.0, 2.0])
LEAVES = (
    st.builds(weir.MatchQuery, PHRASES, COLUMNS, FACTORS, operator=st.sampled_from(["or", "and"]))
    | st.builds(weir.MatchQuery, st.sampled_from(["cat", "bea", "cot"]), fuzziness=st.sampled_from([1, 2]))
    | st.builds(weir.PhraseQuery, PHRASES, COLUMNS, st.integers(0, 2))
    | st.builds(weir.MultiMatchQuery, PHRASES, st.just(("text", "note")), st.none() | st.just((1.0, 2.0)))
)
QUERIES = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(
            weir.BooleanQuery,
            st.lists(inner, min_size=1, max_size=2),
            st.lists(inner, max_size=2),
            st.lists(inner, max_size=1),
        )
        | st.builds(weir.BooleanQuery, should=st.lists(inner, min_size=1, max_size=2))
        | st.builds(weir.BoostQuery, inner, inner, FACTORS)
    ),
    max_leaves=4,
)
FILTERS = st.sampled_from([(None, None), ("number = 1", 1), ("number = 2", 2)])
COUNTS = st.sampled_from([1, 2, 5, 40])


class SearchMachine(RuleBasedStateMachine):
    """One writer, merges, indexes and searches."""

    fields: list[pa.Field]
    keys: st.SearchStrategy[Key]

    @initialize(shards=st.sampled_from([None, 2]), memtable_rows=st.sampled_from([4, 100]))
    def create(self, shards: int | None, memtable_rows: int) -> None:
        self.directory = tempfile.mkdtemp(prefix="weir-search-")
        schema = pa.schema(
            [
                *self.fields,
                ("text", pa.string()),
                ("note", pa.string()),
                ("vector", pa.list_(pa.float32(), 3)),
                ("number", pa.int64()),
            ]
        )
        self.names = [field.name for field in self.fields]
        shard_by = None if shards is None else weir.bucket(self.names[-1], shards)
        self.table = weir.create(
            f"{self.directory}/table", schema, primary_key=self.names, shard_by=shard_by, fsync=False
        )
        self.index("text")
        self.index("note")
        self.writer = self.table.writer(max_memtable_rows=memtable_rows).__enter__()
        self.model: dict[Key, dict[str, Any]] = {}
        self.token: tuple[SnapshotToken, dict[Key, dict[str, Any]]] | None = None

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            self.writer.__exit__(RuntimeError, RuntimeError("end"), None)
        shutil.rmtree(getattr(self, "directory", ""), ignore_errors=True)

    def index(self, column: str) -> None:
        lance.dataset(self.table.uri).create_scalar_index(
            column, "INVERTED", with_position=True, stem=False, remove_stop_words=False
        )

    @rule(data=st.data())
    def upsert(self, data: st.DataObject) -> None:
        rows = data.draw(st.dictionaries(self.keys, ROWS, min_size=1, max_size=8))
        self.writer.upsert([{**dict(zip(self.names, key, strict=True)), **row} for key, row in rows.items()])
        self.model.update(rows)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        keys = data.draw(st.lists(self.keys, min_size=1, max_size=4))
        self.writer.delete([key[0] for key in keys] if len(self.names) == 1 else keys)
        for key in keys:
            self.model.pop(key, None)

    @rule()
    def flush(self) -> None:
        self.writer.flush()

    @rule()
    def merge(self) -> None:
        self.writer.flush()
        self.table.maintenance.merge()

    @rule(column=st.sampled_from(["text", "note"]), anew=st.booleans())
    def catch_up(self, column: str, anew: bool) -> None:
        if anew:
            self.index(column)
        else:
            lance.dataset(self.table.uri).optimize.optimize_indices(
                num_indices_to_merge=0, index_names=[f"{column}_idx"]
            )

    @rule()
    def compact(self) -> None:
        lance.dataset(self.table.uri).optimize.compact_files()

    @rule()
    def forget(self) -> None:
        default_context().cache.clear()
        self.table = weir.open(self.table.uri, fsync=False)

    @rule()
    @precondition(lambda self: self.token is None)
    def take_token(self) -> None:
        self.token = (self.table.snapshot(), dict(self.model))

    @rule(
        vectors=st.lists(st.lists(st.integers(-3, 3).map(float), min_size=3, max_size=3), max_size=3),
        metric=st.sampled_from([None, "l2", "cosine", "dot"]),
        k=COUNTS,
        condition=FILTERS,
    )
    def by_vector(
        self, vectors: list[list[float]], metric: str | None, k: int, condition: tuple[str | None, int | None]
    ) -> None:
        asked = [vector for vector in vectors if any(vector)] or [[1.0, 2.0, 3.0]]
        text, number = condition
        one = len(asked) == 1
        found = self.table.search(
            asked[0] if one else asked, k, filter=text, metric=metric, columns=self.names
        ).to_table()
        for at, vector in enumerate(asked):
            mine = found if one else found.filter(pa.array(np.equal(found["_query_index"].to_numpy(), at)))
            expected = nearest(
                self.model, vector, metric or "l2", keep=lambda row: number is None or row["number"] == number
            )
            check_ranking(mine, self.names, "_distance", expected, k, descending=False)

    @rule(query=QUERIES, k=COUNTS, condition=FILTERS)
    def by_text(self, query: TextQuery, k: int, condition: tuple[str | None, int | None]) -> None:
        text, number = condition
        found = self.table.search_text(query, k, column="text", filter=text, columns=self.names).to_table()
        scores = text_scores(self.model, query)
        expected = {
            key: score
            for key, score in scores.items()
            if number is None or self.model[key]["number"] == number
        }
        check_ranking(found, self.names, "_score", expected, k, descending=True)

    @rule(word=WORDS, k=COUNTS)
    def by_both(self, word: str, k: int) -> None:
        found = self.table.search_hybrid([1.0, 0.0, -1.0], word, k, text_column="text").to_table()
        near = nearest(self.model, [1.0, 0.0, -1.0])
        apt = text_scores(self.model, weir.MatchQuery(word))
        assert found.num_rows == min(k, len({*near, *apt}))
        for row in found.to_pylist():
            key = tuple(row[name] for name in self.names)
            assert {name: row[name] for name in ("text", "number")} == {
                name: self.model[key][name] for name in ("text", "number")
            }
            for name, expected in (("_distance", near.get(key)), ("_score", apt.get(key))):
                if expected is None:
                    assert row[name] is None
                else:
                    assert row[name] == pytest.approx(expected, rel=1e-4, abs=1e-5)

    @rule(word=WORDS)
    @precondition(lambda self: self.token is not None)
    def at_token(self, word: str) -> None:
        assert self.token is not None
        token, model = self.token
        found = self.table.search_text(word, 40, column="text", at=token).to_table()
        expected = text_scores(model, weir.MatchQuery(word))
        check_ranking(found, self.names, "_score", expected, 40, descending=True)
        found = self.table.search([1.0, 2.0, 0.0], 40, at=token).to_table()
        check_ranking(found, self.names, "_distance", nearest(model, [1.0, 2.0, 0.0]), 40, descending=False)


@pytest.mark.hypothesis
@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", KEYS)
def test_searches_equal_brute_force(kind: str) -> None:
    fields, keys = KEYS[kind]
    machine = type(f"SearchMachine_{kind}", (SearchMachine,), {"fields": fields, "keys": keys})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=settings().max_examples // 5,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
