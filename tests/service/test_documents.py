"""Documents of every kind and what is asked of them, by the unmodified client."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

import numpy as np
import pytest
import turbopuffer

from tests.service.conftest import Served

_FIRST, _SECOND = (str(UUID(int=number << 100)) for number in (5, 3))


def ids(answer: Any) -> list[Any]:
    return [row.id for row in answer.rows]


def merged(namespace: Any) -> None:
    while namespace.metadata().index.status != "up-to-date":
        time.sleep(0.1)


def test_uuids_identify_documents_in_every_spelling(client: Any, name: str) -> None:
    namespace = client.namespace(name)
    namespace.write(upsert_rows=[{"id": _FIRST, "n": 1}, {"id": _SECOND, "n": 2}], schema={"id": "uuid"})
    assert ids(namespace.query(rank_by=("id", "asc"), top_k=9)) == [_SECOND, _FIRST]
    assert namespace.write(patch_rows=[{"id": _FIRST.upper(), "n": 7}]).rows_patched == 1
    assert ids(namespace.query(rank_by=("id", "asc"), top_k=9, filters=("id", "In", [_FIRST]))) == [_FIRST]
    with pytest.raises(turbopuffer.BadRequestError, match="occurs twice"):
        namespace.write(upsert_rows=[{"id": _FIRST}, {"id": _FIRST.upper()}])
    with pytest.raises(turbopuffer.BadRequestError, match=r"row 0.*'id' is uuid, got string"):
        namespace.write(upsert_rows=[{"id": "no uuid"}])
    answer = namespace.write(deletes=[_SECOND], return_affected_ids=True)
    assert answer.deleted_ids == [_SECOND]
    assert namespace.schema()["id"].type == "uuid"
    merged(namespace)
    namespace.write(upsert_rows=[{"id": _FIRST, "n": 8}])
    [row] = namespace.query(rank_by=("n", "asc"), top_k=9, include_attributes=["n"]).rows
    assert (row.id, row["n"]) == (_FIRST, 8)


def test_values_of_every_type_are_kept_and_compared(client: Any, name: str) -> None:
    moment = "2026-01-15T10:00:00Z"
    values: dict[str, Any] = {
        "s": "a",
        "i": -5,
        "u": 2**63,
        "f": 1.5,
        "b": True,
        "uu": _FIRST,
        "d": moment,
        "ls": ["a"],
        "li": [1],
        "lu": [3],
        "lf": [1.5],
        "lb": [True],
        "luu": [_FIRST],
        "ld": [moment],
    }
    schema = {"u": "uint", "uu": "uuid", "d": "datetime", "lu": "[]uint", "luu": "[]uuid", "ld": "[]datetime"}
    namespace = client.namespace(name)
    namespace.write(upsert_rows=[{"id": 1, **values}, {"id": 2}], schema=schema)
    [row, _] = namespace.query(rank_by=("id", "asc"), top_k=2, include_attributes=True).rows
    assert {one: row[one] for one in values} == values
    there: list[Any] = [
        *(("uu", "Eq", _FIRST), ("d", "Gte", moment), ("luu", "Contains", _FIRST), ("lu", "Contains", 3)),
        *(("lu", "AnyGt", 2), ("ld", "ContainsAny", [moment]), ("u", "Eq", 2**63), ("li", "AnyGt", 0)),
        *(("lf", "AnyLte", 1.5), ("ls", "Eq", ["a"]), ("b", "Eq", True), ("i", "In", [-5, 3])),
    ]
    for one in there:
        assert ids(namespace.query(rank_by=("id", "asc"), top_k=9, filters=one)) == [1], one
        assert ids(namespace.query(rank_by=("id", "asc"), top_k=9, filters=("Not", one))) == [2], one


def test_texts_are_found_within_an_edit_distance(client: Any, name: str) -> None:
    namespace = client.namespace(name)
    texts = ["walrus", "Walrux", "fish", None]
    namespace.write(upsert_columns={"id": [1, 2, 3, 4], "t": texts})
    steps = [{"min_query_chars": 3, "distance": 0}, {"min_query_chars": 6, "distance": 1}]
    options = {"max_edit_distance": steps}
    cases = [
        ("walrus", options, [1]),
        ("walrux", options, [1, 2]),
        ("walrux", {**options, "case_sensitive": False}, [1, 2]),
        ("fis", options, []),
        ("fi", options, []),
    ]
    for text, asked, expected in cases:
        filters: Any = ("t", "Fuzzy", text, asked)
        assert ids(namespace.query(rank_by=("id", "asc"), top_k=9, filters=filters)) == expected, text
        left = sorted({1, 2, 3, 4} - {*expected})
        assert ids(namespace.query(rank_by=("id", "asc"), top_k=9, filters=("Not", filters))) == left
    bad = {"max_edit_distance": [{"min_query_chars": 3, "distance": 1}]}
    with pytest.raises(turbopuffer.BadRequestError, match="min_query_chars"):
        namespace.query(rank_by=("id", "asc"), top_k=9, filters=("t", "Fuzzy", "fish", bad))


def test_what_was_declared_holds(client: Any, name: str) -> None:
    namespace = client.namespace(name)
    schema: Any = {"t": {"type": "string", "filterable": False}}
    namespace.write(upsert_rows=[{"id": 1, "t": "a"}], schema=schema)
    with pytest.raises(turbopuffer.BadRequestError, match="'t' is not filterable"):
        namespace.query(rank_by=("id", "asc"), top_k=1, filters=("t", "Eq", "a"))
    with pytest.raises(turbopuffer.BadRequestError, match="'t' is not filterable"):
        namespace.write(deletes=[1], delete_condition=("t", "Eq", "a"))
    for bad in ({"k1": -1.0}, {"b": 1.5}):
        constants: Any = {"x": {"type": "string", "full_text_search": bad}}
        with pytest.raises(turbopuffer.BadRequestError, match="k1"):
            namespace.write(upsert_rows=[{"id": 2}], schema=constants)
    with pytest.raises(turbopuffer.BadRequestError, match="at most 1,024 attributes"):
        namespace.write(upsert_rows=[{"id": 2, **{f"a{number}": 1 for number in range(1024)}}])
    assert ids(namespace.query(rank_by=("id", "asc"), top_k=9)) == [1]


def test_lists_of_texts_are_searched_for_words(client: Any, name: str) -> None:
    namespace = client.namespace(name)
    schema: Any = {"tags": {"type": "[]string", "full_text_search": True}}
    rows: list[dict[str, Any]] = [
        {"id": 1, "tags": ["red walrus", "sea"]},
        {"id": 2, "tags": ["walrus", "walrus tusk", "walrus"]},
        {"id": 3, "tags": []},
        {"id": 4},
        {"id": 5, "tags": ["lion"]},
    ]
    namespace.write(upsert_rows=rows, schema=schema)
    found = namespace.query(rank_by=("tags", "BM25", "walrus sea"), top_k=9, include_attributes=["tags"])
    assert {row.id: row.tags for row in found.rows} == {one["id"]: one["tags"] for one in rows[:2]}
    namespace.write(patch_rows=[{"id": 5, "tags": ["sea lion", "walrus"]}])
    assert {*ids(namespace.query(rank_by=("tags", "BM25", "walrus"), top_k=9))} == {1, 2, 5}
    for filters, expected in (
        (("tags", "ContainsAllTokens", "walrus sea"), [1, 5]),
        (("tags", "ContainsAnyToken", "tusk lion"), [2, 5]),
        (("tags", "ContainsTokenSequence", "walrus sea"), [1]),
        (("Not", ("tags", "ContainsAnyToken", "walrus")), [3, 4]),
    ):
        assert ids(namespace.query(rank_by=("id", "asc"), top_k=9, filters=filters)) == expected


def test_texts_are_ranked_by_the_constants_of_their_attribute(client: Any, name: str) -> None:
    namespace = client.namespace(name)
    texts = ["sea", "sea sea sea sea", "sea of the many ships and long sails", "land"]
    rows = [{"id": at, "t": text, "plain": text} for at, text in enumerate(texts)]
    schema: Any = {
        "t": {"type": "string", "full_text_search": {"k1": 0.0, "b": 0.0}},
        "plain": {"type": "string", "full_text_search": True},
    }
    namespace.write(upsert_rows=rows, schema=schema)

    def scores(attribute: str) -> dict[int, float]:
        found = namespace.query(rank_by=(attribute, "BM25", "sea"), top_k=9)
        return {row.id: getattr(row, "$dist") for row in found.rows}

    assert len({*scores("t").values()}) == 1  # how often, and in how long a text, is of no account
    assert len({*scores("plain").values()}) == 3
    schema["t"]["full_text_search"] = {"k1": 2.0, "b": 0.0}
    namespace.update_schema(schema=schema)
    assert namespace.schema()["t"].full_text_search.k1 == 2.0
    rarity = np.log1p((4 - 3 + 0.5) / (3 + 0.5))
    expected = {0: rarity, 1: rarity * 4 * 3 / (4 + 2), 2: rarity}
    assert scores("t") == pytest.approx(expected, rel=1e-5)
    both = namespace.query(rank_by=("Sum", (("t", "BM25", "sea"), ("plain", "BM25", "sea"))), top_k=9)
    plain = scores("plain")
    summed = {row.id: getattr(row, "$dist") for row in both.rows}
    assert summed == pytest.approx({id: expected[id] + plain[id] for id in expected}, rel=1e-5)


def test_a_copy_goes_on_after_its_request(client: Any, name: str) -> None:
    client.namespace(name).write(upsert_rows=[{"id": number} for number in range(20)])
    copy = client.namespace(f"{name}-copy")
    with pytest.raises(turbopuffer.NotFoundError):
        copy.start_copy_from(source_namespace=f"{name}-missing")
    token = copy.start_copy_from(source_namespace=name).token
    while (state := copy.poll_copy_from(token)).status != "finished":
        time.sleep(0.05)
    assert state.result.success.rows_affected == 20
    assert len(ids(copy.query(rank_by=("id", "asc"), top_k=99))) == 20
    for unknown in ("0" * 32, "x"):
        with pytest.raises(turbopuffer.NotFoundError):
            copy.poll_copy_from(unknown)
    with pytest.raises(turbopuffer.BadRequestError, match="already"):
        copy.start_copy_from(source_namespace=name)


def test_answers_tell_of_the_state_they_saw(client: Any, name: str) -> None:
    namespace = client.namespace(name)
    namespace.write(upsert_rows=[{"id": 1, "vector": [1.0, 0.0]}])
    eventual: Any = {"level": "eventual", "max_staleness_seconds": 600}
    queries: list[Any] = [
        {"rank_by": ("id", "asc"), "top_k": 9},
        {"rank_by": ("vector", "ANN", [1.0, 0.0]), "top_k": 9},
    ]
    for query in queries:
        first = namespace.query(**query, consistency=eventual)
        namespace.write(upsert_rows=[{"id": len(ids(first)) + 1, "vector": [1.0, 0.0]}])
        # Not older than asked, and not newer than it says.
        later = namespace.query(**query, consistency=eventual)
        assert ids(later) == ids(first)
        assert later.performance.snapshot == first.performance.snapshot
        assert later.performance.snapshot_age_ms >= first.performance.snapshot_age_ms
        strong = namespace.query(**query)
        assert len(ids(strong)) > len(ids(first))
        assert strong.performance.snapshot != first.performance.snapshot


def test_a_cursor_that_was_not_given_is_refused(served: Served) -> None:
    with served.http() as http:
        for cursor in ("%25%25%25", "!", "a"):
            assert http.get(f"/v1/namespaces?cursor={cursor}").status_code == 400
