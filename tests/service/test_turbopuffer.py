"""The client of turbopuffer, as it is, against a service in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import turbopuffer

from tests.service.conftest import Served
from tests.service.process import ServiceProcess, make_key

ROWS = [
    {"id": 1, "vector": [1.0, 0.0], "text": "walrus tusk", "n": 1, "tags": ["sea", "ice"], "ok": True},
    {"id": 2, "vector": [0.0, 1.0], "text": "fish soup", "n": 2, "tags": ["sea"]},
    {"id": 3, "vector": [1.0, 1.0], "text": "walrus and fish", "n": 3, "score": 0.5},
]
TEXT = {"text": {"type": "string", "full_text_search": True}}


def written(client: Any, name: str) -> Any:
    namespace = client.namespace(name)
    answer = namespace.write(upsert_rows=ROWS, schema=TEXT, distance_metric="cosine_distance")
    assert (answer.status, answer.rows_affected, answer.rows_upserted) == ("OK", 3, 3)
    return namespace


def ids(answer: Any) -> list[Any]:
    return [row.id for row in answer.rows]


def test_vectors_are_ranked_by_their_distance(client: Any, name: str) -> None:
    namespace = written(client, name)
    for how in ("ANN", "kNN"):
        answer = namespace.query(rank_by=("vector", how, [1.0, 0.1]), top_k=3, include_attributes=["n"])
        assert ids(answer) == [1, 3, 2]
        distances = [row["$dist"] for row in answer.rows]
        vectors = np.array([row["vector"] for row in ROWS])[[0, 2, 1]]
        asked = np.array([1.0, 0.1])
        cosine = 1 - vectors @ asked / np.linalg.norm(vectors, axis=1) / np.linalg.norm(asked)
        assert np.allclose(distances, cosine, atol=1e-6)
        assert [row["n"] for row in answer.rows] == [1, 3, 2]
    assert answer.performance.approx_namespace_size == 3


def test_euclidean_distances_are_squared(client: Any, name: str) -> None:
    namespace = client.namespace(name)
    namespace.write(
        upsert_columns={"id": ["a", "b"], "vector": [[0.0, 0.0], [3.0, 4.0]]},
        distance_metric="euclidean_squared",
    )
    answer = namespace.query(rank_by=("vector", "ANN", [0.0, 0.0]), top_k=2)
    assert [(row.id, row["$dist"]) for row in answer.rows] == [("a", 0.0), ("b", 25.0)]


def test_texts_are_ranked_by_words(client: Any, name: str) -> None:
    namespace = written(client, name)
    answer = namespace.query(rank_by=("text", "BM25", "walrus"), top_k=3)
    assert ids(answer) == [1, 3]
    assert answer.rows[0]["$dist"] >= answer.rows[1]["$dist"] > 0
    summed = namespace.query(
        rank_by=("Sum", [("text", "BM25", "walrus"), ("Product", 3.0, ("text", "BM25", "soup"))]), top_k=3
    )
    assert ids(summed)[0] == 2
    best = namespace.query(rank_by=("Max", [("text", "BM25", "tusk"), ("text", "BM25", "soup")]), top_k=3)
    assert sorted(ids(best)) == [1, 2]
    assert ids(namespace.query(rank_by=("text", "BM25", "and the"), top_k=3)) == []


def test_documents_are_ordered_by_attributes(client: Any, name: str) -> None:
    namespace = written(client, name)
    assert ids(namespace.query(rank_by=("n", "desc"), top_k=10)) == [3, 2, 1]
    assert ids(namespace.query(rank_by=("score", "asc"), top_k=10)) == [3, 1, 2]
    assert ids(namespace.query(rank_by=[("ok", "asc"), ("n", "desc")], top_k=2, offset=1)) == [3, 2]
    with pytest.raises(turbopuffer.BadRequestError, match="'nothing'"):
        namespace.query(rank_by=("nothing", "asc"), top_k=10)


def test_filters_take_documents(client: Any, name: str) -> None:
    namespace = written(client, name)
    cases: list[Any] = [
        (("n", "Gte", 2), [2, 3]),
        (("score", "NotEq", 0.5), [1, 2]),
        (("score", "Eq", None), [1, 2]),
        (("tags", "Contains", "ice"), [1]),
        (("tags", "NotContains", "ice"), [2, 3]),
        (("Or", [("id", "In", [1]), ("text", "Glob", "*soup")]), [1, 2]),
        (("Not", ("And", [("n", "Gt", 1), ("score", "Gt", 0.1)])), [1, 2]),
        (("And", []), [1, 2, 3]),
        (("unheard-of", "Eq", None), [1, 2, 3]),
        (("unheard-of", "Gt", 1), []),
        (("text", "ContainsAllTokens", "FISH walrus"), [3]),
        (("text", "ContainsTokenSequence", "walrus tusk"), [1]),
        (("text", "Regex", "^walrus (tusk|x)$"), [1]),
    ]
    for filters, expected in cases:
        answer = namespace.query(rank_by=("id", "asc"), top_k=10, filters=filters)
        assert ids(answer) == expected, filters
        nearest = namespace.query(rank_by=("vector", "ANN", [1.0, 0.0]), top_k=10, filters=filters)
        assert sorted(ids(nearest)) == expected, filters


def test_attributes_are_returned_as_asked(client: Any, name: str) -> None:
    namespace = written(client, name)
    [row] = namespace.query(
        rank_by=("id", "asc"), top_k=1, include_attributes=True, vector_encoding="base64"
    ).rows
    assert row["text"] == "walrus tusk"
    assert row["tags"] == ["sea", "ice"]
    assert row["vector"] == "AACAPwAAAAA="
    [row] = namespace.query(rank_by=("id", "asc"), top_k=1, exclude_attributes=["vector", "tags"]).rows
    assert "text" in row
    assert "vector" not in (row.model_extra or {})
    assert row.vector is None
    [row] = namespace.query(rank_by=("id", "asc"), top_k=1).rows
    assert not row.model_extra


def test_numbers_are_told_of_documents(client: Any, name: str) -> None:
    namespace = written(client, name)
    answer = namespace.query(
        aggregate_by={"rows": ("Count",), "sum": ("Sum", "n"), "scored": ("Count", "score")},
        filters=("n", "Gt", 1),
    )
    assert answer.aggregations == {"rows": 2, "sum": 5, "scored": 1}
    grouped = namespace.query(aggregate_by={"rows": ("Count",)}, group_by=["ok"], top_k=10)
    assert grouped.aggregation_groups == [{"ok": True, "rows": 1}, {"ok": None, "rows": 2}]


def test_sums_have_more_than_64_bits_where_they_must(client: Any, name: str) -> None:
    namespace = client.namespace(name)
    most = {"i": 2**63 - 1, "u": 2**64 - 1}
    rows = [{"id": id, "tags": ["a"], "f": 0.5, **most} for id in range(2)]
    namespace.write(upsert_rows=rows, schema={"u": "uint"})
    sums = {attribute: ("Sum", attribute) for attribute in ("i", "u", "f")}
    # Numbers of more than 64 bits are floats to the client.
    expected = {"i": 2 * most["i"], "u": pytest.approx(2 * most["u"]), "f": 1.0}
    assert namespace.query(aggregate_by=sums).aggregations == expected
    for group in ("tags", {"tag": ("ForEachUnique", "tags")}):
        [told] = namespace.query(aggregate_by=sums, group_by=[group], top_k=9).aggregation_groups
        assert {attribute: told[attribute] for attribute in sums} == expected


def test_nothing_has_a_count_and_a_sum(client: Any, name: str) -> None:
    namespace = client.namespace(name)
    namespace.write(create_namespace=True, schema={"id": "uint", "n": "int"})
    answer = namespace.query(
        aggregate_by={
            "rows": ("Count",),
            "sum": ("Sum", "n"),
            "unheard-of": ("Sum", "x"),
            "of it": ("Count", "x"),
        }
    )
    assert answer.aggregations == {"rows": 0, "sum": 0, "unheard-of": 0, "of it": 0}


def test_how_much_there_is_follows_every_write(client: Any, name: str) -> None:
    namespace = written(client, name)
    assert namespace.metadata().approx_row_count == 3
    namespace.write(
        upsert_rows=[{"id": 1, "vector": [1.0, 1.0]}, {"id": 4, "vector": [1.0, 1.0]}], deletes=[2]
    )
    assert namespace.metadata().approx_row_count == 3
    for rows in (6, 7):
        seen = namespace.query(rank_by=("id", "asc"), top_k=1).performance
        assert seen.exhaustive_search_count >= rows
        namespace.write(upsert_rows=[{"id": 4, "vector": [1.0, 1.0]}])


def test_a_plan_names_the_namespace_and_no_place(served: Served, client: Any, name: str) -> None:
    namespace = written(client, name)
    for asked in (
        {"rank_by": ("vector", "ANN", [1.0, 0.0])},
        {"rank_by": ("text", "BM25", "walrus")},
        {"rank_by": ("n", "asc")},
        {"aggregate_by": {"rows": ("Count",)}},
    ):
        plan = namespace.explain_query(top_k=1, **asked).plan_text
        assert name in plan
        assert str(served.root) not in plan


def test_as_many_alike_as_asked(client: Any, name: str) -> None:
    namespace = client.namespace(name)
    namespace.write(upsert_rows=[{"id": n, "kind": f"k{n % 3}", "n": n} for n in range(30)])
    answer = namespace.query(
        rank_by=("n", "asc"), limit={"total": 5, "per": {"attributes": ["kind"], "limit": 2}}
    )
    assert ids(answer) == [0, 1, 2, 3, 4]
    answer = namespace.query(
        rank_by=("n", "desc"), limit={"total": 10, "per": {"attributes": ["kind"], "limit": 1}}
    )
    assert ids(answer) == [29, 28, 27]


def test_documents_are_replaced_and_deleted(client: Any, name: str) -> None:
    namespace = written(client, name)
    namespace.write(upsert_rows=[{"id": 1, "vector": [0.0, -1.0], "text": "new"}], deletes=[2])
    answer = namespace.query(rank_by=("id", "asc"), top_k=10, include_attributes=["text", "n"])
    assert [(row.id, row["text"], row["n"]) for row in answer.rows] == [
        (1, "new", None),
        (3, "walrus and fish", 3),
    ]


def test_several_queries_see_one_state(client: Any, name: str) -> None:
    namespace = written(client, name)
    queries = [
        {"rank_by": ("vector", "ANN", [1.0, 0.0]), "top_k": 3},
        {"rank_by": ("text", "BM25", "fish"), "top_k": 3},
    ]
    answer = namespace.multi_query(queries=queries)
    assert [[row.id for row in result.rows] for result in answer.results] == [[1, 3, 2], [2, 3]]
    [fused] = namespace.multi_query(queries=queries, rerank_by=("RRF",), limit=3).results
    scores = {1: 1 / 61, 3: 1 / 62 + 1 / 62, 2: 1 / 63 + 1 / 61}
    assert [row.id for row in fused.rows] == sorted(scores, key=lambda one: -scores[one])
    assert np.allclose([row["$dist"] for row in fused.rows], sorted(scores.values(), reverse=True))

    def first(**most: Any) -> list[int]:
        options = {"rerank_by": ("RRF",), "extra_body": most}
        [found] = namespace.multi_query(queries=queries, **options).results
        return [row.id for row in found.rows]

    ranked = [row.id for row in fused.rows]
    assert first(limit={"total": 2}) == first(top_k=2) == first(limit=2) == ranked[:2]
    assert first(top_k=1, offset=1) == ranked[1:2]
    for refused in ({"top_k": 1, "limit": 1}, {"limit": {"total": 1, "per": {}}}, {"top_k": 0}):
        with pytest.raises(turbopuffer.BadRequestError):
            first(**refused)
    with pytest.raises(turbopuffer.BadRequestError, match="go with rerank_by"):
        namespace.multi_query(queries=queries, extra_body={"top_k": 1})


def test_one_ranking_of_several_shows_of_each_document_what_any_of_them_does(client: Any, name: str) -> None:
    namespace = client.namespace(name)
    rows = [{"id": id, "vector": [id, 1.0], "a": id, "b": -id, "c": 2 * id} for id in (1, 2)]
    namespace.write(upsert_rows=rows, distance_metric="euclidean_squared")

    def shown(first: dict[str, Any], second: dict[str, Any]) -> list[dict[str, Any]]:
        near = {"rank_by": ("vector", "ANN", [1, 1]), "top_k": 1, **first}
        last = {"rank_by": ("id", "desc"), "top_k": 2, **second}
        found = namespace.multi_query(queries=[near, last], rerank_by=("RRF",)).results[0].rows
        return [{"id": row.id, **{one: row[one] for one in "abc" if one in row.model_extra}} for row in found]

    assert shown({"include_attributes": ["a"]}, {"include_attributes": ["b"]}) == [
        {"id": id, "a": id, "b": -id} for id in (1, 2)
    ]
    assert shown({"include_attributes": ["a"]}, {"exclude_attributes": ["a", "b", "vector"]}) == [
        {"id": id, "a": id, "c": 2 * id} for id in (1, 2)
    ]


def test_patches_change_what_they_name(client: Any, name: str) -> None:
    namespace = written(client, name)
    answer = namespace.write(
        patch_rows=[{"id": 1, "n": 10}, {"id": 3, "fresh": "x"}, {"id": 99, "n": 0}], return_affected_ids=True
    )
    assert (answer.rows_patched, answer.patched_ids) == (2, [1, 3])
    rows = namespace.query(rank_by=("id", "asc"), top_k=9, include_attributes=["n", "fresh", "text"]).rows
    assert [(row.id, row["n"], row["fresh"]) for row in rows] == [(1, 10, None), (2, 2, None), (3, 3, "x")]
    twice = {"filters": ("id", "Lte", 2), "patch": {"n": 0}}
    answer = namespace.write(
        patch_by_filter=twice, patch_rows=[{"id": 2, "n": 5}, {"id": 3, "n": 3}], return_affected_ids=True
    )
    assert (answer.rows_patched, sorted(answer.patched_ids)) == (3, [1, 2, 3])
    namespace.write(patch_columns={"id": [1, 2], "n": [None, 7]})
    rows = namespace.query(rank_by=("id", "asc"), top_k=9, include_attributes=["n"]).rows
    assert [row["n"] for row in rows] == [None, 7, 3]


def test_conditions_decide_what_is_written(client: Any, name: str) -> None:
    namespace = client.namespace(name)
    namespace.write(upsert_rows=[{"id": 1, "version": 5}, {"id": 2, "version": 5}])
    answer = namespace.write(
        upsert_rows=[{"id": 1, "version": 4}, {"id": 2, "version": 6}, {"id": 3, "version": 1}],
        upsert_condition=("version", "Lt", {"$ref_new": "version"}),
        return_affected_ids=True,
    )
    assert (answer.rows_upserted, answer.upserted_ids) == (2, [2, 3])
    answer = namespace.write(deletes=[1, 2, 9], delete_condition=("version", "Eq", 6))
    assert answer.rows_deleted == 1
    answer = namespace.write(
        patch_rows=[{"id": 1, "seen": True}, {"id": 3, "seen": True}], patch_condition=("version", "Gt", 2)
    )
    assert answer.rows_patched == 1
    rows = namespace.query(rank_by=("id", "asc"), top_k=9, include_attributes=["version", "seen"]).rows
    assert [(row.id, row["version"], row["seen"]) for row in rows] == [(1, 5, True), (3, 1, None)]


def test_filters_delete_and_patch(client: Any, name: str) -> None:
    namespace = client.namespace(name)
    namespace.write(upsert_rows=[{"id": n, "n": n} for n in range(10)])
    answer = namespace.write(
        delete_by_filter=("n", "Lt", 3),
        patch_by_filter={"filters": ("n", "Gte", 8), "patch": {"big": True}},
        upsert_rows=[{"id": 0, "n": 100}],
        return_affected_ids=True,
    )
    assert (answer.rows_deleted, answer.rows_patched, answer.rows_upserted) == (3, 2, 1)
    assert answer.rows_remaining is False
    assert answer.deleted_ids == [0, 1, 2]
    found = namespace.query(rank_by=("id", "asc"), top_k=20, filters=("big", "Eq", True))
    assert ids(found) == [8, 9]
    assert ids(namespace.query(rank_by=("id", "asc"), top_k=20)) == [0, 3, 4, 5, 6, 7, 8, 9]


def test_a_value_of_another_type_is_refused_by_name(client: Any, name: str) -> None:
    namespace = written(client, name)
    bad: list[Any] = [
        ({"id": 9, "vector": [1.0, 1.0], "n": "many"}, "row 1.*'n' is int, got string"),
        ({"id": 9, "vector": [1.0], "n": 1}, "row 1.*dimensions"),
        ({"id": 9, "n": 1}, "row 1.*'vector'"),
        ({"id": "text", "vector": [1.0, 1.0]}, "row 1.*'id' is uint, got string"),
        ({"id": 9, "vector": [1.0, 1.0], "tags": ["a", 1]}, r"row 1.*'tags' is \[\]string"),
        ({"id": 9, "vector": [1.0, 1.0], "new": {"a": 1}}, "'new'"),
        ({"id": 9, "vector": [1.0, float("inf")]}, "finite"),
        ({"id": 9, "vector": [1.0, 1.0], "$x": 1}, r"\$x"),
        ({"id": 4, "vector": [1.0, 1.0]}, "occurs twice"),
    ]
    for row, message in bad:
        with pytest.raises(turbopuffer.BadRequestError, match=message):
            namespace.write(upsert_rows=[{"id": 4, "vector": [1.0, 1.0]}, row])
    assert ids(namespace.query(rank_by=("id", "asc"), top_k=9)) == [1, 2, 3]


def test_what_a_namespace_is(client: Any, name: str) -> None:
    namespace = written(client, name)
    schema = namespace.schema()
    assert {key: one.type for key, one in schema.items()} == {
        "id": "uint",
        "vector": "[2]f32",
        "text": "string",
        "n": "int",
        "tags": "[]string",
        "ok": "bool",
        "score": "float",
    }
    assert schema["vector"].ann.distance_metric == "cosine_distance"
    assert schema["text"].full_text_search.language == "english"
    metadata = namespace.metadata()
    assert metadata.approx_row_count == 3
    assert metadata.index.status == "updating"
    assert metadata.schema_["n"].type == "int"
    assert namespace.hint_cache_warm().status == "ACCEPTED"
    assert namespace.recall(num=3, top_k=2).avg_recall == 1.0
    assert "vector" in namespace.explain_query(rank_by=("vector", "ANN", [1.0, 0.0]), top_k=1).plan_text
    changed = namespace.update_schema(schema={"more": "datetime", "n": {"drop": True}})
    assert "more" in changed
    assert "n" not in changed
    assert namespace.update_metadata(read_only=True).read_only is True
    with pytest.raises(turbopuffer.PermissionDeniedError, match="read-only"):
        namespace.write(deletes=[1])
    with pytest.raises(turbopuffer.PermissionDeniedError, match="read-only"):
        namespace.delete_all()
    namespace.update_metadata(read_only=False)
    namespace.write(deletes=[1])


def test_a_name_is_free_after_a_deletion(client: Any, name: str) -> None:
    namespace = written(client, name)
    assert namespace.delete_all().status == "OK"
    for call in (namespace.schema, namespace.metadata, namespace.delete_all):
        with pytest.raises(turbopuffer.NotFoundError):
            call()
    namespace.write(upsert_rows=[{"id": "other", "n": "text now"}])
    assert ids(namespace.query(rank_by=("id", "asc"), top_k=9)) == ["other"]


def test_namespaces_are_listed_by_pages(client: Any, name: str) -> None:
    for part in "abc":
        client.namespace(f"{name}-{part}").write(upsert_rows=[{"id": 1}])
    assert [one.id for one in client.namespaces(prefix=f"{name}-", page_size=2)] == [
        f"{name}-{part}" for part in "abc"
    ]


def test_a_copy_is_a_namespace_of_its_own(client: Any, name: str) -> None:
    source = written(client, name)
    copy = client.namespace(f"{name}-copy")
    assert copy.write(copy_from_namespace=name).rows_affected == 3
    source.write(deletes=[1])
    assert ids(copy.query(rank_by=("id", "asc"), top_k=9)) == [1, 2, 3]
    copy.write(upsert_rows=[{"id": 4, "vector": [1.0, 2.0]}])
    assert ids(copy.query(rank_by=("text", "BM25", "soup"), top_k=9)) == [2]


NUMBERS = [
    {"id": 1, "n": 0, "u": 3, "t": "2026-01-01T00:00:00Z", "text": "fish", "tags": ["a", "b"]},
    {"id": 2, "n": 4, "u": 0, "t": "2026-01-02T06:00:00Z", "text": "whale", "tags": ["b", "b"]},
    {"id": 3, "n": 10, "u": 9, "t": "2026-01-05T00:00:00Z", "text": "fish fishing", "tags": []},
    {"id": 4, "n": -3, "u": 1, "t": "2026-01-02T00:00:00Z", "text": "crab"},
    {"id": 5},
]


def numbered(client: Any, name: str) -> Any:
    namespace = client.namespace(name)
    schema = {"n": "int", "u": "uint", "t": "datetime", **TEXT}
    namespace.write(upsert_rows=NUMBERS, schema=schema)
    return namespace


def test_numbers_and_filters_rank_beside_words(client: Any, name: str) -> None:
    namespace = numbered(client, name)
    signed, unsigned, fish = ("Attribute", "n"), ("Attribute", "u"), ("text", "BM25", "fish")
    when = ("Dist", ("Attribute", "t"), "2026-01-02T00:00:00Z")
    [bm25] = [row["$dist"] for row in namespace.query(rank_by=fish, top_k=9, filters=("id", "Eq", 1)).rows]
    cases: list[tuple[Any, list[int], list[float]]] = [
        (unsigned, [3, 1, 4, 2], [9, 3, 1, 0]),
        (("Max", [0, signed]), [3, 2, 1, 4], [10, 4, 0, 0]),
        (("Max", [2, fish]), [1, 3], [2, 2]),
        (("Saturate", signed, {"midpoint": 5}), [3, 2, 1, 4], [10 / 15, 4 / 9, 0, 0]),
        (("Decay", unsigned, {"midpoint": 3, "exponent": 2}), [2, 4, 1, 3], [1, 0.9, 0.5, 0.1]),
        (("Dist", signed, 5), [4, 1, 3, 2], [8, 5, 5, 1]),
        (("Product", 2, unsigned), [3, 1, 4, 2], [18, 6, 2, 0]),
        (("Decay", when, {"midpoint": "12h"}), [4, 2, 1, 3], [1, 2 / 3, 1 / 3, 1 / 7]),
        (("Decay", when, {"midpoint": 43_200_000}), [4, 2, 1, 3], [1, 2 / 3, 1 / 3, 1 / 7]),
        (("n", "Gt", 3), [2, 3], [1, 1]),
        (("Not", ("n", "Gt", 3)), [1, 4, 5], [1, 1, 1]),
        (("Sum", [("n", "Gt", 3), ("Product", 0.5, ("u", "Lt", 5))]), [2, 3, 1, 4], [1.5, 1, 0.5, 0.5]),
        (("Sum", [fish, ("text", "Eq", "crab"), ("id", "Eq", 1)]), [1, 4, 3], []),
        (("Sum", [unsigned, ("text", "BM25", "whale crab")]), [3, 1, 4, 2], []),
        (("text", "BM25", "fi", {"last_as_prefix": True}), [1, 3], [1, 1]),
        (("text", "BM25", "whale fish", {"last_as_prefix": True}), [2, 1, 3], []),
    ]
    for ranking, expected, scores in cases:
        rows = namespace.query(rank_by=ranking, top_k=9, include_attributes=["n"]).rows
        assert [row.id for row in rows] == expected, ranking
        assert [row["$dist"] for row in rows][: len(scores)] == pytest.approx(scores), ranking
        assert [row["n"] for row in rows] == [NUMBERS[row.id - 1].get("n") for row in rows]
        assert namespace.explain_query(rank_by=ranking, top_k=9).plan_text
    whole = namespace.query(rank_by=("Sum", [fish, ("Product", 3, ("u", "Eq", 3))]), top_k=1).rows
    assert [(row.id, row["$dist"]) for row in whole] == [(1, pytest.approx(3 + bm25))]
    second = namespace.query(rank_by=unsigned, top_k=1, offset=1, filters=("id", "Lt", 4)).rows
    assert [(row.id, row["$dist"]) for row in second] == [(1, 3)]


def test_what_is_computed_of_documents_is_told_beside_their_attributes(client: Any, name: str) -> None:
    namespace = written(client, name)
    answer = namespace.query(
        rank_by=("n", "desc"),
        top_k=3,
        include_attributes=["n"],
        compute_attributes={
            "far": ("vector", "VectorDist", [1.0, 0.0]),
            "words": ("text", "BM25", "walrus"),
            "sum": ("Sum", [("n", "Gte", 2), ("Saturate", ("Attribute", "score"), {"midpoint": 0.5})]),
        },
    )
    assert ids(answer) == [3, 2, 1]
    assert [row["far"] for row in answer.rows] == pytest.approx([1 - 0.5**0.5, 1, 0])
    assert [row["sum"] for row in answer.rows] == [1.5, 1, 0]
    found = namespace.query(rank_by=("text", "BM25", "walrus"), top_k=3)
    bm25 = {row.id: row["$dist"] for row in found.rows}
    assert [row["words"] for row in answer.rows] == pytest.approx([bm25[3], 0, bm25[1]])
    for bad in (
        {"n": ("n", "Gt", 1)},
        {"far": ("vector", "VectorDist", [1.0])},
        {"far": ("none", "VectorDist", [1.0, 0.0])},
        {"o": ("n", "asc")},
    ):
        with pytest.raises(turbopuffer.BadRequestError):
            namespace.query(rank_by=("n", "desc"), top_k=3, compute_attributes=bad)
    with pytest.raises(turbopuffer.APIStatusError, match="Highlight") as refused:
        namespace.query(rank_by=("n", "desc"), top_k=3, compute_attributes={"h": ("Highlight", "text")})
    assert refused.value.status_code == 501


def test_groups_are_told_of_each_element_of_lists(client: Any, name: str) -> None:
    namespace = numbered(client, name)
    numbers = {"rows": ("Count",), "sum": ("Sum", "u"), "n": ("Count", "n")}
    each = [{"tag": ("ForEachUnique", "tags")}]
    answer = namespace.query(aggregate_by=numbers, group_by=each, top_k=9)
    assert answer.aggregation_groups == [
        {"tag": "a", "rows": 1, "sum": 3, "n": 1},
        {"tag": "b", "rows": 2, "sum": 3, "n": 2},
    ]
    both = namespace.query(aggregate_by={"rows": ("Count",)}, group_by=["text", *each], top_k=2)
    assert both.aggregation_groups == [
        {"text": "fish", "tag": "a", "rows": 1},
        {"text": "fish", "tag": "b", "rows": 1},
    ]
    nobody = namespace.query(aggregate_by=numbers, group_by=[{"x": ("ForEachUnique", "none")}], top_k=9)
    assert nobody.aggregation_groups == []
    with pytest.raises(turbopuffer.BadRequestError, match="lists"):
        namespace.query(aggregate_by=numbers, group_by=[{"x": ("ForEachUnique", "n")}], top_k=9)


def test_a_ranking_that_cannot_be_is_refused(client: Any, name: str) -> None:
    namespace = numbered(client, name)
    signed, fish = ("Attribute", "n"), ("text", "BM25", "fish")
    for ranking in (
        *(signed, ("Product", 2, signed), ("Max", [signed]), ("Max", [signed, -1]), ("Max", 0, signed)),
        *(("Max", [1, 2]), ("Sum", [0.5, fish]), ("Dist", signed, 5.5), ("Dist", signed, "x")),
        *(("Attribute", "text"), ("Attribute", "none"), ("Attribute", "tags"), ("Dist", fish, 1)),
        *(
            ("Decay", signed, {}),
            ("Decay", signed, {"midpoint": 0}),
            ("Saturate", signed, {"midpoint": "2s"}),
        ),
        ("Decay", ("Dist", signed, 3), {"midpoint": "2s"}),
        ("Decay", ("Dist", ("Attribute", "t"), "2026-01-02T00:00:00Z"), {"midpoint": "2y"}),
        ("Saturate", signed, {"midpoint": 1, "exponent": -1}),
        ("n", "Gt", "x"),
        ("Sum", [fish] * 300),
    ):
        with pytest.raises(turbopuffer.BadRequestError):
            namespace.query(rank_by=ranking, top_k=9)


def test_what_is_left_out_is_named(client: Any, name: str) -> None:
    namespace = written(client, name)
    calls: list[Any] = [
        (lambda: namespace.query(rank_by=("v", "SparseKNN", {"a": 1.0}), top_k=1), "SparseKNN"),
        (lambda: namespace.query(rank_by=("vector", "ANN", ("Embed", "x")), top_k=1), "Embed"),
        (lambda: client.namespace(f"{name}-b").write(branch_from_namespace=name), "branch_from_namespace"),
        (lambda: namespace.update_metadata(pinning=True), "pinning"),
        (lambda: namespace.write(schema={"s": {"type": "{}f16"}}, deletes=[9]), "sparse"),
    ]
    for call, feature in calls:
        with pytest.raises(turbopuffer.APIStatusError, match=feature) as refused:
            call()
        assert refused.value.status_code == 501


@pytest.mark.long
def test_acknowledged_writes_survive_a_kill(tmp_path: Path) -> None:
    first = ServiceProcess(tmp_path)
    client: Any = turbopuffer.Turbopuffer(api_key="none", base_url=first.url, max_retries=0)
    written(client, "docs")
    client.close()
    first.kill()
    second = ServiceProcess(tmp_path)
    client = turbopuffer.Turbopuffer(api_key="none", base_url=second.url, max_retries=0)
    namespace = client.namespace("docs")
    assert ids(namespace.query(rank_by=("text", "BM25", "walrus"), top_k=9)) == [1, 3]
    namespace.write(upsert_rows=[{"id": 4, "vector": [1.0, 2.0]}])
    assert ids(namespace.query(rank_by=("id", "asc"), top_k=9)) == [1, 2, 3, 4]
    client.close()
    assert second.stop()[0] == 0


def test_keys_are_for_their_namespaces_and_roles(served: Served, name: str) -> None:
    written(served.client(), f"{name}-in")
    reader = served.client(make_key(served.root, "reader", "--namespaces", f"{name}-*"))
    assert ids(reader.namespace(f"{name}-in").query(rank_by=("id", "asc"), top_k=9)) == [1, 2, 3]
    with pytest.raises(turbopuffer.PermissionDeniedError):
        reader.namespace(f"{name}-in").write(deletes=[1])
    for outside in ("exists-not", "ns-0"):
        with pytest.raises(turbopuffer.PermissionDeniedError):
            reader.namespace(outside).schema()
    with pytest.raises(turbopuffer.NotFoundError):
        reader.namespace(f"{name}-missing").schema()
    assert [one.id for one in reader.namespaces()] == [f"{name}-in"]
    with pytest.raises(turbopuffer.AuthenticationError):
        served.client("weir_0000000000000000_" + "x" * 43).namespace(name).schema()
    with served.http("nonsense") as http:
        refused = http.get("/v1/namespaces")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert refused.json()["status"] == "error"
        assert http.get("/healthz").status_code == 200
        assert http.get("/readyz").status_code == 200
        assert http.get("/metrics").status_code == 401
    with served.http() as http:
        assert "weir_requests_total" in http.get("/metrics").text
