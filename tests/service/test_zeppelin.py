"""The dialect of Zeppelin, over plain HTTP."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import numpy as np
import pytest
from msgspec import msgpack

from tests.service.conftest import Served
from tests.service.test_planted_bugs import Root
from weir.namespaces import Documents, Namespace, Write

_numbers = itertools.count()

VECTORS = [
    {"id": "a", "values": [0.0, 0.0], "attributes": {"kind": "x", "tags": ["red"], "title": "sea lion"}},
    {"id": "b", "values": [0.1, 0.0], "attributes": {"kind": "y", "tags": ["red", "blue"], "title": "sea"}},
    {"id": "c", "values": [0.2, 0.0], "attributes": {"kind": "y", "title": "walrus sea"}},
    {"id": "d", "values": [1.0, 0.0], "attributes": {"kind": "z", "n": 5, "title": "old ship"}},
    {"id": "e", "values": [0.0, 1.0], "attributes": {"kind": "z", "n": 7, "title": "sea ship"}},
]
HERE = {"type": "ann", "vector": [0.0, 0.0]}
SEA = {"type": "bm25", "rank_by": ["title", "BM25", "sea"]}


@pytest.fixture
def http(served: Served) -> Iterator[httpx2.Client]:
    with served.http() as client:
        yield client


@pytest.fixture
def place(http: httpx2.Client) -> str:
    """The path of a namespace with a few vectors."""
    name = f"zep-{next(_numbers)}"
    config = {
        "name": name,
        "dimensions": 2,
        "distance_metric": "euclidean",
        "full_text_search": {"title": {}},
    }
    made = http.post("/v1/namespaces", json=config)
    assert made.status_code == 201, made.text
    assert made.json()["full_text_search"]["title"]["stemming"] is True
    assert http.post("/v1/namespaces", json=config).status_code == 200
    written = http.post(f"/v1/namespaces/{name}/vectors", json={"vectors": VECTORS})
    assert (written.status_code, written.json()) == (200, {"upserted": 5})
    return f"/v1/namespaces/{name}"


def found(http: httpx2.Client, place: str, **body: Any) -> dict[str, Any]:
    answer = http.post(f"{place}/query", json=body)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def ids(told: dict[str, Any]) -> list[str]:
    return [one["id"] for one in told["results"]]


def refused(answer: httpx2.Response) -> tuple[int, str]:
    told = answer.json()
    assert {*told} == {"code", "error", "request_id", "retryable", "status"}
    assert told["status"] == answer.status_code
    assert told["request_id"] == answer.headers["x-request-id"]
    return answer.status_code, told["code"]


def test_a_namespace_is_shown(http: httpx2.Client, place: str) -> None:
    shown = http.get(place).json()
    assert (shown["dimensions"], shown["distance_metric"], shown["vector_count"]) == (2, "euclidean", 5)
    assert (shown["uncompacted_fragments"], shown["segment_count"], shown["state"]) == (1, 0, "active")
    assert shown["last_compaction_status"] == "never"
    name = place.rpartition("/")[2]
    other = http.post("/v1/namespaces", json={"name": name, "dimensions": 3})
    assert refused(other) == (409, "NAMESPACE_ALREADY_EXISTS")
    assert refused(http.get(f"{place}-missing")) == (404, "NAMESPACE_NOT_FOUND")


def test_one_source_ranks_by_distance(http: httpx2.Client, place: str) -> None:
    told = found(http, place, sources=[HERE], top_k=3, projection={"include_attributes": False})
    assert told["results"] == [
        {"id": "a", "score": 0.0, "attributes": None},
        {"id": "b", "score": 0.010000001, "attributes": None},
        {"id": "c", "score": 0.040000003, "attributes": None},
    ]
    assert (told["scanned_fragments"], told["scanned_segments"]) == (1, 0)
    assert ids(found(http, place, vector=[0.0, 0.0], top_k=2)) == ["a", "b"]
    debug = found(http, place, vector=[0.0, 0.0], debug=True)["debug"]
    assert (debug["unindexed_rows"], debug["snapshot_age_ms"] >= 0, bool(debug["snapshot"])) == (
        5,
        True,
        True,
    )
    assert ids(found(http, place, sources=[{"type": "ann", "id": "a"}], top_k=3)) == ["b", "c", "d"]
    [best] = found(http, place, rank_by=["title", "BM25", "walrus"])["results"]
    assert best["attributes"] == {"kind": "y", "title": "walrus sea"}


def test_filters_take_vectors(http: httpx2.Client, place: str) -> None:
    cases = [
        ({"op": "eq", "field": "kind", "value": "y"}, ["b", "c"]),
        ({"op": "not_eq", "field": "kind", "value": "y"}, ["a", "d", "e"]),
        ({"op": "range", "field": "n", "gte": 5, "lt": 7}, ["d"]),
        ({"op": "not_in", "field": "n", "values": [5]}, ["a", "b", "c", "e"]),
        ({"op": "contains", "field": "tags", "value": "blue"}, ["b"]),
        ({"op": "contains_all_tokens", "field": "title", "tokens": ["Ship", "sea"]}, ["e"]),
        ({"op": "contains_token_sequence", "field": "title", "tokens": ["sea", "lion"]}, ["a"]),
        (
            {
                "op": "and",
                "filters": [
                    {"op": "not", "filter": {"op": "eq", "field": "kind", "value": "x"}},
                    {
                        "op": "or",
                        "filters": [
                            {"op": "eq", "field": "n", "value": 7},
                            {"op": "in", "field": "kind", "values": ["y"]},
                        ],
                    },
                ],
            },
            ["b", "c", "e"],
        ),
    ]
    for taken, expected in cases:
        assert sorted(ids(found(http, place, sources=[HERE], filter=taken))) == expected, taken


def test_sources_are_fused(http: httpx2.Client, place: str) -> None:
    told = found(
        http,
        place,
        sources=[HERE, SEA],
        fusion={"type": "rrf", "k": 20},
        top_k=3,
        candidate_k=5,
        explain="plan",
    )
    by_distance = ["a", "b", "c"]
    by_words = sorted(
        found(http, place, sources=[SEA], candidate_k=5)["results"],
        key=lambda one: (-one["score"], one["id"]),
    )
    expected: dict[str, float] = {}
    nearest = ids(found(http, place, sources=[HERE], top_k=5))
    assert nearest[:3] == by_distance
    for ranking in (nearest, [one["id"] for one in by_words]):
        for rank, one in enumerate(ranking, start=1):
            expected[one] = expected.get(one, 0) + 1 / (20 + rank)
    best = sorted(expected, key=lambda one: (-expected[one], one))[:3]
    assert ids(told) == best
    assert np.allclose([one["score"] for one in told["results"]], [expected[one] for one in best])
    assert told["scanned_fragments"] == 2
    assert told["explain"]["plan"]["path"] == "algebra_hybrid"
    weighted = found(
        http,
        place,
        sources=[HERE, SEA],
        fusion={"type": "weighted", "weights": [1.0, 0.0]},
        candidate_k=5,
        explain="full",
    )
    assert [(one["id"], one["score"]) for one in weighted["results"]][:3] == [
        ("a", 1.0),
        ("b", 0.99),
        ("c", 0.96),
    ]
    first = weighted["explain"]["results"][0]
    assert (first["id"], first["fused_score"], first["sources"][0]["normalized_score"]) == ("a", 1.0, 1.0)


def test_candidates_are_ranked_again_grouped_and_counted(http: httpx2.Client, place: str) -> None:
    told = found(
        http,
        place,
        sources=[{"type": "ann", "vector": [0.6, 0.0]}],
        rerank={"type": "vector", "vector": [0.0, 0.0]},
    )
    assert ids(told)[:3] == ["a", "b", "c"]
    told = found(
        http,
        place,
        sources=[HERE],
        top_k=2,
        candidate_k=5,
        grouping={"type": "field", "field": "kind", "max_per_group": 1},
        facets=["kind", "tags"],
    )
    assert [(group["key"], [one["id"] for one in group["results"]]) for group in told["groups"]] == [
        ("x", ["a"]),
        ("y", ["b"]),
    ]
    assert told["facets"] == {"kind": {"x": 1, "y": 2, "z": 2}, "tags": {"blue": 1, "red": 2}}


def test_a_cursor_goes_on_over_a_deletion_and_belongs_to_query_and_key(
    http: httpx2.Client, place: str, served: Served
) -> None:
    body: dict[str, Any] = {"sources": [HERE], "top_k": 2, "candidate_k": 3, "cursor": {"type": "none"}}
    first = found(http, place, **body)
    assert ids(first) == ["a", "b"]
    removed = http.request("DELETE", f"{place}/vectors", json={"ids": ["c"]})
    assert removed.status_code == 204
    after = {"type": "after", "token": first["next_cursor"]}
    second = found(http, place, **{**body, "cursor": after})
    assert ids(second) == ["c"]
    assert "next_cursor" not in second
    forged = after["token"][:-6] + "AAAAA="
    for changed in (
        {**body, "top_k": 1, "cursor": after},
        {**body, "cursor": {"type": "after", "token": forged}},
    ):
        answer = http.post(f"{place}/query", json=changed)
        assert refused(answer) == (400, "cursor_policy_stale")
    with served.http(served.new_key("reader")) as other:
        assert refused(other.post(f"{place}/query", json={**body, "cursor": after}))[0] == 400


def test_a_cursor_goes_from_group_to_group_until_there_is_none(http: httpx2.Client, place: str) -> None:
    grouping = {"type": "field", "field": "kind", "max_per_group": 2}
    body: dict[str, Any] = {"sources": [HERE], "top_k": 2, "candidate_k": 5, "grouping": grouping}
    pages, cursor = [], {"type": "none"}
    while True:
        told = found(http, place, **body, cursor=cursor)
        pages.append([(one["key"], [two["id"] for two in one["results"]]) for one in told["groups"]])
        if "next_cursor" not in told:
            break
        cursor = {"type": "after", "token": told["next_cursor"]}
    whole = found(http, place, **{**body, "top_k": 5})
    groups = [(one["key"], [two["id"] for two in one["results"]]) for one in whole["groups"]]
    assert [one for page in pages for one in page] == groups
    assert all(pages)


def test_vectors_are_fetched_packed_and_deleted_by_filter(http: httpx2.Client, place: str) -> None:
    columnar = {
        "ids": ["p", "q"],
        "dimensions": 2,
        "values_f32_le": np.array([[2, 2], [3, 3]], "<f4").tobytes(),
        "attributes": [None, {"kind": "q"}],
    }
    written = http.post(
        f"{place}/vectors",
        content=msgpack.encode({"columnar": columnar}),
        headers={"content-type": "application/msgpack"},
    )
    assert written.json() == {"upserted": 2}
    told = http.post(
        f"{place}/vectors/get", json={"ids": ["q", "none", "b"], "attribute_fields": ["kind"]}
    ).json()
    assert told == {
        "results": [
            {"id": "q", "values": [3.0, 3.0], "attributes": {"kind": "q"}},
            {"id": "b", "values": [0.1, 0.0], "attributes": {"kind": "y"}},
        ],
        "missing": ["none"],
    }
    gone = http.request(
        "DELETE", f"{place}/vectors", json={"filter": {"op": "in", "field": "kind", "values": ["q", "z"]}}
    )
    assert gone.status_code == 204
    assert sorted(ids(found(http, place, sources=[HERE], top_k=10))) == ["a", "b", "c", "p"]


def test_a_document_from_before_there_were_vectors_is_fetched_without(
    served: Served, http: httpx2.Client
) -> None:
    name = f"zep-{next(_numbers)}"
    docs = served.client().namespace(name)
    docs.write(upsert_rows=[{"id": "old", "n": 1}])
    docs.write(upsert_rows=[{"id": "new", "vector": [1.0, 2.0]}], distance_metric="cosine_distance")
    answer = http.post(f"/v1/namespaces/{name}/vectors/get", json={"ids": ["old", "new"]})
    assert answer.json()["results"] == [
        {"id": "old", "attributes": {"n": 1}},
        {"id": "new", "values": [1.0, 2.0]},
    ]


def test_a_deletion_in_parts_is_done_once_by_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.namespaces.decision.MOST_DELETED", 2)
    root = Root(tmp_path)
    place = "/v1/namespaces/docs/vectors"
    root.ask("POST", "/v1/namespaces", {"name": "docs", "dimensions": 1})
    rows = [{"id": str(number), "values": [1.0], "attributes": {"n": number}} for number in range(5)]
    root.ask("POST", place, {"vectors": rows})
    where = {"filter": {"op": "range", "field": "n", "gte": 0}}
    key = {"idempotency-key": "k"}
    assert root.ask("DELETE", place, where, headers=key)[0] == 204
    root.ask("POST", place, {"vectors": rows})
    assert root.ask("DELETE", place, where, headers=key)[0] == 204
    told = root.ask("POST", f"{place}/get", {"ids": [row["id"] for row in rows]})[1]
    assert (len(told["results"]), told["missing"]) == (5, [])
    assert root.ask("DELETE", place, where)[0] == 204
    assert root.ask("POST", f"{place}/get", {"ids": ["0"]})[1]["missing"] == ["0"]


def test_a_snapshot_that_is_made_twice_at_once_retains_one_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Root(tmp_path)
    place = "/v1/namespaces/docs/snapshots"
    root.ask("POST", "/v1/namespaces", {"name": "docs", "dimensions": 1})
    token, release = Namespace.token, Namespace.release
    others: list[tuple[int, Any]] = []
    released: list[str] = []

    def beside_another(self: Namespace, *arguments: Any) -> str:
        monkeypatch.setattr(Namespace, "token", token)
        with ThreadPoolExecutor(1) as thread:
            others.append(thread.submit(root.ask, "PUT", f"{place}/one").result())
        return token(self, *arguments)

    def released_too(self: Namespace, text: str) -> None:
        released.append(text)
        release(self, text)

    monkeypatch.setattr(Namespace, "token", beside_another)
    monkeypatch.setattr(Namespace, "release", released_too)
    assert root.ask("PUT", f"{place}/one") == others[0]
    assert (others[0][0], len(released)) == (201, 1)
    assert root.ask("DELETE", f"{place}/one")[0] == 204
    assert len({*released}) == 2


def test_a_write_is_taken_once_by_its_key(http: httpx2.Client, place: str) -> None:
    body = {"vectors": [{"id": "once", "values": [1.0, 2.0]}]}
    key = {"idempotency-key": "k"}
    assert http.post(f"{place}/vectors", json=body, headers=key).json() == {"upserted": 1}
    assert http.request("DELETE", f"{place}/vectors", json={"ids": ["once"]}).status_code == 204
    assert http.post(f"{place}/vectors", json=body, headers=key).json() == {"upserted": 1}
    assert http.post(f"{place}/vectors/get", json={"ids": ["once"]}).json()["missing"] == ["once"]
    other = {"vectors": [{"id": "other", "values": [1.0, 2.0]}]}
    assert http.post(f"{place}/vectors", json=other, headers=key).status_code == 422


def test_compaction_and_the_nouns_of_it(http: httpx2.Client, place: str) -> None:
    http.request("DELETE", f"{place}/vectors", json={"ids": ["d"]})
    manifest = http.get(f"{place}/manifest").json()
    assert [(one["vector_count"], one["delete_count"]) for one in manifest["fragments"]] == [(5, 0), (0, 1)]
    assert (manifest["segments"], manifest["pending_deletes"]) == ([], ["d"])
    lease = http.get(f"{place}/lease").json()
    assert lease["fencing_token"] == manifest["fencing_token"] >= 1
    accepted = http.post(f"{place}/compact")
    assert (accepted.status_code, accepted.json()["status"]) == (202, "accepted")
    for _ in range(200):
        status = http.get(f"{place}/compact/status").json()
        if status["ready"]:
            break
    assert (status["uncompacted_fragments"], status["active_segment_vector_count"]) == (0, 4)
    assert http.post(f"{place}/compact").json()["status"] == "noop"
    assert http.get(f"{place}/manifest").json()["segments"][0]["vector_count"] == 4
    assert sorted(ids(found(http, place, sources=[HERE]))) == ["a", "b", "c", "e"]
    assert http.post(f"{place}/hydrate").status_code == 202
    changed = http.request("PATCH", f"{place}/index_config", json={"quantization": "scalar"})
    assert (changed.status_code, changed.json()["index_config"]["quantization"]) == (202, "scalar")


def test_snapshots_and_clones(http: httpx2.Client, place: str) -> None:
    assert http.put(f"{place}/snapshots/before").status_code == 201
    assert http.put(f"{place}/snapshots/before").status_code == 201
    http.request("DELETE", f"{place}/vectors", json={"ids": ["a"]})
    assert refused(http.put(f"{place}/snapshots/before")) == (409, "SNAPSHOT_ALREADY_EXISTS")
    assert [one["name"] for one in http.get(f"{place}/snapshots").json()["snapshots"]] == ["before"]
    name = place.rpartition("/")[2]
    cloned = http.post(f"{place}/clone", json={"target": f"{name}-clone", "as_of": "snapshot:before"})
    assert (cloned.status_code, cloned.json()["namespace"]["vector_count"]) == (201, 5)
    assert http.delete(f"{place}/snapshots/before").status_code == 204
    assert refused(http.get(f"{place}/snapshots/before")) == (404, "SNAPSHOT_NOT_FOUND")


def test_several_queries_fail_each_by_itself(http: httpx2.Client, place: str) -> None:
    queries = [{"sources": [HERE], "top_k": 1}, {"sources": [{"type": "ann", "vector": [0.0]}]}]
    good, bad = http.post(f"{place}/query/batch", json={"queries": queries}).json()["results"]
    assert (good["ok"], ids(good["response"])) == (True, ["a"])
    assert (bad["ok"], bad["error"]["code"]) == (False, "DIMENSION_MISMATCH")
    assert bad["error"]["error"] == "dimension mismatch: expected 2, got 1"
    many = http.post(f"{place}/query/batch", json={"queries": [queries[0]] * 17})
    assert refused(many) == (413, "PAYLOAD_TOO_LARGE")


def test_what_is_refused_and_what_is_switched_off(http: httpx2.Client, place: str) -> None:
    assert refused(http.post(f"{place}/query", json={"sources": [HERE], "top_k": 0})) == (
        400,
        "VALIDATION_ERROR",
    )
    vectors = {"sources": [HERE], "projection": {"include_vectors": True}}
    assert refused(http.post(f"{place}/query", json=vectors)) == (501, "NOT_IMPLEMENTED")
    for path in ("/v1/security/principals", "/v1/security/grants", f"{place}/branches"):
        assert refused(http.get(path)) == (403, "feature_disabled")
    release = http.post("/v1/security/preservation/one/release", json={})
    assert refused(release) == (403, "feature_disabled")
    assert refused(http.post(f"{place}/vectors", content=b"[" * 5000)) == (400, "VALIDATION_ERROR")
    http.headers["authorization"] = "Bearer none"
    assert refused(http.get(place)) == (401, "unauthenticated")


def test_a_deleted_namespace_is_gone_for_seconds_then_unknown(http: httpx2.Client, place: str) -> None:
    assert http.delete(place).json() == {"state": "deleting"}
    answer = http.post(f"{place}/vectors", json={"vectors": VECTORS})
    assert refused(answer) == (410, "NAMESPACE_DELETING")


def test_keys_are_made_rotated_and_revoked(http: httpx2.Client, served: Served, place: str) -> None:
    made = http.post(
        "/v1/security/keys", json={"name": "r", "role": "reader", "namespaces": ["zep-*"]}
    ).json()
    with served.http(made["key"]) as reader:
        assert reader.get(place).status_code == 200
        assert refused(reader.delete(place)) == (403, "forbidden")
        assert refused(reader.get("/v1/security/keys")) == (403, "forbidden")
        rotated = http.post(f"/v1/security/keys/{made['id']}/rotate", json={}).json()
        assert reader.get(place).status_code == 401
    assert made["id"] in {one["key_id"] for one in http.get("/v1/security/keys").json()["keys"]}
    assert http.delete(f"/v1/security/keys/{made['id']}").status_code == 200
    with served.http(rotated["key"]) as reader:
        assert reader.get(place).status_code == 401


def test_a_namespace_may_be_named_by_the_service(http: httpx2.Client) -> None:
    made = http.post("/v1/namespaces", json={"dimensions": 2}).json()
    assert str(UUID(made["name"])) == made["name"]
    assert http.get(f"/v1/namespaces/{made['name']}").json()["state"] == "active"
    status = http.get(f"/v1/namespaces/{made['name']}/compact/status").json()
    assert (status["ready"], status["uncompacted_fragments"]) == (True, 0)
    assert refused(http.post("/v1/namespaces", json={"dimensions": 2, "name": ""}))[0] == 400


def test_what_is_no_number_is_no_part_of_a_vector(http: httpx2.Client, place: str) -> None:
    for values in ([True, 0.5], [0.5, False], [None, 1.0], ["1", 1.0]):
        answer = http.post(f"{place}/vectors", json={"vectors": [{"id": "a", "values": values}]})
        assert refused(answer) == (400, "VALIDATION_ERROR"), values
        assert refused(http.post(f"{place}/query", json={"vector": values}))[0] == 400, values
    wrong = {"vectors": [{"id": "a", "values": [0.0, 0.0], "attributes": []}]}
    assert refused(http.post(f"{place}/vectors", json=wrong)) == (400, "VALIDATION_ERROR")
    assert ids(found(http, place, vector=[0.0, 0.0], top_k=1)) == ["a"]


def test_ranges_are_of_numbers_of_either_kind(http: httpx2.Client, place: str) -> None:
    for bounds, wanted in (
        ({"gt": 4.5}, "de"),
        ({"gte": 5.5}, "e"),
        ({"lt": 5.5}, "d"),
        ({"lte": 6.9}, "d"),
        ({"gt": 4.0, "lt": 6.5}, "d"),
        ({"gt": -0.5, "lte": 7.0}, "de"),
    ):
        told = found(http, place, vector=[0.0, 0.0], filter={"op": "range", "field": "n", **bounds})
        assert "".join(sorted(ids(told))) == wanted, bounds


def test_a_vector_without_the_field_is_a_group_of_its_own(http: httpx2.Client, place: str) -> None:
    grouping = {"type": "field", "field": "n", "max_per_group": 2}
    told = found(http, place, sources=[HERE], grouping=grouping, top_k=4)
    assert [(one["key"], ids(one)) for one in told["groups"]] == [
        ("a", ["a"]),
        ("b", ["b"]),
        ("c", ["c"]),
        ("5", ["d"]),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"sources": [HERE, HERE], "fusion": {"type": "none"}},
        {"vector": [0, 0], "facets": [""]},
        {"vector": [0, 0], "projection": []},
        {"vector": [0, 0], "projection": {"include_attributes": False}, "include_attributes": True},
    ],
)
def test_a_query_that_contradicts_itself_is_refused(
    http: httpx2.Client, place: str, body: dict[str, Any]
) -> None:
    assert refused(http.post(f"{place}/query", json=body)) == (400, "VALIDATION_ERROR")


def test_a_plan_tells_of_the_candidates_that_are_taken_without_being_asked_for(
    http: httpx2.Client, place: str
) -> None:
    for top_k, wanted in ((2, 100), (30, 120)):
        told = found(http, place, sources=[HERE, SEA], top_k=top_k, explain="plan")
        assert told["explain"]["plan"]["candidate_k"] == wanted


def test_fetched_attributes_are_those_that_are_there(http: httpx2.Client, place: str) -> None:
    def fetched(**body: Any) -> httpx2.Response:
        return http.post(f"{place}/vectors/get", json={"ids": ["a"], **body})

    assert fetched(attribute_fields=["n"]).json()["results"] == [{"id": "a", "values": [0.0, 0.0]}]
    none: dict[str, Any] = {"attribute_fields": []}
    for wrong in (none, {"attribute_fields": ["n"], "include_attributes": False}, {"consistency": "weak"}):
        assert refused(fetched(**wrong)) == (400, "VALIDATION_ERROR"), wrong


def test_clones_are_of_moments_and_generations_that_are_retained(http: httpx2.Client, place: str) -> None:
    name = place.rpartition("/")[2]

    def cloned(target: str, as_of: str) -> httpx2.Response:
        return http.post(f"{place}/clone", json={"target": f"{name}-{target}", "as_of": as_of})

    pinned = http.put(f"{place}/snapshots/before").json()["generation"]
    http.request("DELETE", f"{place}/vectors", json={"ids": ["a"]})
    present = http.get(f"{place}/compact/status").json()["manifest_generation"]
    later = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    for target, as_of, vectors in (("one", pinned, 5), ("two", present, 4), ("three", later, 4)):
        answer = cloned(target, str(as_of))
        assert (answer.status_code, answer.json()["namespace"]["vector_count"]) == (201, vectors), as_of
    for as_of in (str(present + 1), "2020-01-01T00:00:00Z"):
        assert refused(cloned("four", as_of)) == (410, "POINT_IN_TIME_NOT_RETAINED"), as_of
    assert refused(cloned("four", "snapshot:none")) == (404, "SNAPSHOT_NOT_FOUND")
    assert refused(cloned("four", "2020-01-01T00:00:00")) == (400, "VALIDATION_ERROR")


def test_a_clone_of_a_generation_has_nothing_that_was_written_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Root(tmp_path)
    assert root.ask("POST", "/v1/namespaces", {"name": "docs", "dimensions": 2})[0] == 201
    place, vector = "/v1/namespaces/docs", {"id": "a", "values": [0.0, 1.0]}
    root.ask("POST", f"{place}/vectors", {"vectors": [vector]})
    generation = root.ask("GET", f"{place}/compact/status")[1]["manifest_generation"]
    token, later = Namespace.token, ["b", "c"]

    def after_a_write(self: Namespace, *given: Any) -> str:
        if later:
            vectors = Documents.of_rows([{"id": later.pop(), "vector": [1.0, 0.0]}])
            self.write(Write(upserts=vectors))
        return token(self, *given)

    def cloned(target: str, as_of: str) -> tuple[int, Any]:
        return root.ask("POST", f"{place}/clone", {"target": target, "as_of": as_of})

    monkeypatch.setattr(Namespace, "token", after_a_write)
    status, told = cloned("copy", str(generation))
    assert (status, told["code"]) == (410, "POINT_IN_TIME_NOT_RETAINED")
    status, told = cloned("copy", "latest")
    assert (status, told["namespace"]["vector_count"]) == (201, 3)
    generation = root.ask("GET", f"{place}/compact/status")[1]["manifest_generation"]
    assert told["generation"] == generation
    assert cloned("again", str(generation))[0] == 201

    def present() -> int:
        generation: int = root.ask("GET", f"{place}/compact/status")[1]["manifest_generation"]
        return generation

    # One write beside the first attempt, and one beside each.
    for name, ids in (("one", ["d"]), ("each", [f"e{number}" for number in range(99)])):
        later.extend(ids)
        assert root.ask("PUT", f"{place}/snapshots/{name}")[1]["generation"] == present()
        assert cloned(f"of-{name}", f"snapshot:{name}")[1]["generation"] == present()
    status, told = cloned("while-written", "latest")
    assert (status, told["generation"]) == (201, present())


def test_what_queries_go_by_is_configured(http: httpx2.Client) -> None:
    path = "/v1/config/query"
    before = http.get(path).json()
    both = {"cost_latency_profile": "low_cost", "rerank_coalesce_gap_bytes": 5}
    assert refused(http.patch(path, json=both)) == (400, "VALIDATION_ERROR")
    none = {"rerank_coalesce_gap_bytes": 0, "bm25_max_full_scan_vectors": 0, "bm25_max_full_scan_clusters": 0}
    assert http.put(path, json=none).json() == {**before, **none}
    assert http.put(path, json=before).json() == before


def test_what_several_processes_configure_at_once_holds(tmp_path: Path) -> None:
    one, other = Root(tmp_path), Root(tmp_path)
    path = "/v1/config/query"
    before = one.ask("GET", path)[1]
    assert other.ask("PATCH", path, {"default_top_k": 5})[1] == {**before, "default_top_k": 5}
    both = {**before, "default_top_k": 5, "default_nprobe": 7}
    assert one.ask("PATCH", path, {"default_nprobe": 7})[1] == both
    assert one.ask("GET", path)[1] == both


def test_a_deletion_may_be_asked_for_again(http: httpx2.Client, place: str) -> None:
    assert [http.delete(place).status_code for _ in range(2)] == [202, 202]
    assert refused(http.post(f"{place}/query", json={"vector": [0.0, 0.0]})) == (410, "NAMESPACE_DELETING")


def test_an_answer_to_a_path_that_there_is_not_names_the_request(http: httpx2.Client, place: str) -> None:
    for method, path, status in (("GET", "/none", 404), ("PUT", place, 405)):
        answer = http.request(method, path, headers={"x-request-id": "mine"})
        assert (answer.status_code, answer.headers["x-request-id"]) == (status, "mine")
