from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from weir.errors import IndexDefinitionError, OptionError
from weir.indexing.policy import IndexPolicy

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("carrier", pa.string()),
        ("remarks", pa.string()),
        ("token", pa.string()),
        ("airport_id", pa.int32()),
        ("delay", pa.float32()),
        ("departed", pa.timestamp("us")),
        ("day", pa.date32()),
        ("cancelled", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("embedding", pa.list_(pa.float32(), 64)),
        ("picture", pa.list_(pa.uint8(), 16)),
        ("raw", pa.binary()),
        ("place", pa.struct([("x", pa.float32())])),
    ]
)


def sample(rows: int = 100) -> pa.Table:
    columns: dict[str, Any] = {name: [None] * rows for name in SCHEMA.names}
    columns["carrier"] = [f"carrier {number % 5}" for number in range(rows)]
    columns["remarks"] = [f"late by {number} minutes because of fog" for number in range(rows)]
    columns["token"] = [f"{number:08x}" for number in range(rows)]
    return pa.table(columns, schema=SCHEMA)


def kinds(policy: IndexPolicy, sample: pa.Table | None = None) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for definition in policy.plan(SCHEMA, ("id",), sample):
        found.setdefault(definition.column, []).append(str(definition.kind))
    return found


ALWAYS = {
    "airport_id": ["BLOOMFILTER"],
    "delay": ["ZONEMAP"],
    "departed": ["BTREE"],
    "day": ["BTREE"],
    "cancelled": ["BITMAP"],
    "tags": ["LABEL_LIST"],
    "embedding": ["IVF_PQ"],
    "picture": ["IVF_FLAT"],
}


def test_by_type_alone() -> None:
    text = {"carrier": ["ZONEMAP"], "remarks": ["ZONEMAP"], "token": ["ZONEMAP"]}
    assert kinds(IndexPolicy()) == ALWAYS | text


def test_a_sample_tells_text_from_enumerations_and_identifiers() -> None:
    text = {"carrier": ["BITMAP"], "remarks": ["INVERTED"], "token": ["BLOOMFILTER"]}
    assert kinds(IndexPolicy(), sample()) == ALWAYS | text


def test_few_rows_tell_nothing() -> None:
    assert kinds(IndexPolicy(), sample(5)) == kinds(IndexPolicy())


def test_what_is_declared_counts() -> None:
    policy = IndexPolicy(
        enumerations=["airport_id"],
        identifiers=["carrier"],
        text=["token"],
        kinds={"delay": ["btree"], "remarks": ["INVERTED", "NGRAM"], "tags": [], "id": ["BITMAP"]},
    )
    found = kinds(policy, sample())
    assert found["airport_id"] == ["BITMAP"]
    assert found["carrier"] == ["BLOOMFILTER"]
    assert found["token"] == ["INVERTED"]
    assert found["delay"] == ["BTREE"]
    assert found["remarks"] == ["INVERTED", "NGRAM"]
    assert found["id"] == ["BITMAP"]
    assert "tags" not in found
    names = [one.name for one in policy.plan(SCHEMA, ("id",)) if one.column == "remarks"]
    assert names == ["remarks_idx", "remarks_ngram_idx"]


def test_parameters_reach_the_definitions() -> None:
    policy = IndexPolicy(rows_per_zone=512, metric="cosine", text=["remarks"])
    parameters = {one.column: dict(one.parameters) for one in policy.plan(SCHEMA, ("id",))}
    assert parameters["delay"] == {"rows_per_zone": 512}
    assert parameters["embedding"] == {"metric": "cosine", "num_sub_vectors": 8}
    assert parameters["picture"] == {"metric": "cosine"}
    assert parameters["remarks"] == {"with_position": True}


@pytest.mark.parametrize("length", [1, 2, 3, 7, 64, 100, 1536])
def test_sub_vectors_divide_the_vector(length: int) -> None:
    schema = pa.schema([("v", pa.list_(pa.float32(), length))])
    definition = IndexPolicy().definition(schema, "v")
    if definition.kind == "IVF_PQ":
        parts = definition.parameters["num_sub_vectors"]
        assert length % parts == 0
        assert parts < length
    else:
        assert length < 4 or length % 2


def test_what_cannot_be() -> None:
    with pytest.raises(IndexDefinitionError, match="no column 'nothing'"):
        IndexPolicy(text=["nothing"]).plan(SCHEMA)
    with pytest.raises(IndexDefinitionError, match="type float cannot have an index of kind INVERTED"):
        IndexPolicy(text=["delay"]).plan(SCHEMA)
    with pytest.raises(IndexDefinitionError, match="inferred for a column of type struct"):
        IndexPolicy().definition(SCHEMA, "place")
    with pytest.raises(IndexDefinitionError, match="no column 'nothing'"):
        IndexPolicy().definition(SCHEMA, "nothing")
    with pytest.raises(IndexDefinitionError, match="no kind of index 'HASH'"):
        IndexPolicy(kinds={"delay": ["HASH"]})
    with pytest.raises(IndexDefinitionError, match="no metric 'manhattan'"):
        IndexPolicy(metric="manhattan")
    with pytest.raises(OptionError, match="rows_per_zone"):
        IndexPolicy(rows_per_zone=0)
    with pytest.raises(OptionError, match="a list of columns"):
        IndexPolicy(text="remarks")
