from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import lance
import pyarrow as pa
import pytest
from lance.bitmap import Bitmap
from lance.dataset import Index, LanceOperation
from tests.sharding.oracles import field_ids

from weir.errors import SchemaError, ShardingError
from weir.format import index_details
from weir.format.index_details import IndexDetails, ShardFieldSpec, ShardSpec
from weir.format.shard_manifest import ShardManifest
from weir.sharding.shard_by import (
    ShardBy,
    bucket,
    day,
    expression,
    identity,
    month,
    multi_bucket,
    truncate,
    unsharded,
    year,
)
from weir.sharding.spec import (
    build_spec,
    describe_spec,
    library_note,
    library_supports,
    next_spec_id,
    read_spec,
)

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("region", pa.string()),
        pa.field("ts", pa.timestamp("us", "UTC")),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("flag", pa.bool_()),
    ]
)
IDS = field_ids(SCHEMA)
KEY = tuple(SCHEMA.names)

ALL = [
    [bucket("id", 8)],
    [identity("region")],
    [unsharded()],
    [multi_bucket(["region", "id"], 16)],
    [truncate("price", 10)],
    [expression("col0 % 7", ["id"], result_type="int64")],
    [year("ts"), month("ts", field_id="m"), bucket("id", 4)],
    [bucket("region", 4, immutable=True)],
]


@pytest.mark.parametrize(
    ("shard_by", "arguments"),
    [
        (bucket("id", 4), {"bucket_column": "id", "num_buckets": 4}),
        (bucket("region", 2), {"bucket_column": "region", "num_buckets": 2}),
        (identity("region"), {"identity_column": "region"}),
        (identity("flag"), {"identity_column": "flag"}),
        (unsharded(), {"unsharded": True}),
    ],
    ids=str,
)
def test_specs_are_those_the_library_writes(shard_by: ShardBy, arguments: dict[str, Any]) -> None:
    dataset = lance.write_dataset(SCHEMA.empty_table(), "memory://")
    dataset.initialize_mem_wal(**arguments)
    details = dataset.mem_wal_index_details()
    assert details is not None
    (theirs,) = details["sharding_specs"]
    ours = build_spec(shard_by, SCHEMA, KEY, IDS)
    (field,) = ours.fields
    own = {key: value for key, value in field.parameters.items() if not key.startswith("weir:")}
    assert theirs == {
        "spec_id": ours.spec_id,
        "fields": [
            {
                "field_id": field.field_id,
                "source_ids": list(field.source_ids),
                "transform": field.transform,
                "expression": field.expression,
                "result_type": field.result_type,
                "parameters": own,
            }
        ],
    }
    assert library_supports(ours)


@pytest.mark.parametrize("wanted", ALL, ids=lambda wanted: ", ".join(map(str, wanted)))
def test_the_library_opens_a_writer_on_any_spec_of_ours(wanted: list[ShardBy], tmp_path: Path) -> None:
    details = IndexDetails(shard_specs=(build_spec(wanted, SCHEMA, KEY, IDS),))
    uri = str(tmp_path / "table")
    dataset = lance.write_dataset(SCHEMA.empty_table(), uri)
    dataset = lance.LanceDataset.commit(
        uri, LanceOperation.CreateIndex([_index(details)], []), read_version=dataset.version
    )
    with dataset.mem_wal_writer(str(uuid4())) as writer:
        writer.put(pa.Table.from_pylist([{"id": 1, "region": "EU"}], SCHEMA))


def _index(details: IndexDetails) -> Index:
    return Index(
        uuid=str(uuid4()),
        name=index_details.INDEX_NAME,
        fields=[],
        dataset_version=1,
        fragment_ids=Bitmap([]),
        index_version=0,
        index_details=(index_details.TYPE_URL, index_details.encode(details)),
    )


@pytest.mark.parametrize("wanted", ALL, ids=lambda wanted: ", ".join(map(str, wanted)))
def test_specs_are_read_back(wanted: list[ShardBy]) -> None:
    spec = build_spec(wanted, SCHEMA, KEY, IDS, spec_id=3)
    stored = index_details.decode(index_details.encode(IndexDetails(shard_specs=(spec,))), where="test")
    (found,) = stored.shard_specs
    assert found == spec
    read = read_spec(found, IDS)
    assert build_spec(read, SCHEMA, KEY, IDS, spec_id=3) == spec
    assert [replace(one, field_id=None) for one in read] == [replace(one, field_id=None) for one in wanted]
    assert describe_spec(found, IDS) == ", ".join(map(str, wanted))


def test_types_and_promises_are_recorded() -> None:
    spec = build_spec([multi_bucket(["id", "ts"], 4, immutable=True)], SCHEMA, ["id"], IDS)
    assert spec.fields[0].parameters == {
        "num_buckets": "4",
        "weir:source_types": "int64;timestamp:us:UTC",
        "weir:immutable": "true",
    }


def test_fields_are_named_by_column_and_transform() -> None:
    spec = build_spec([year("ts"), month("ts"), bucket("id", 4), identity("region")], SCHEMA, KEY, IDS)
    assert [one.field_id for one in spec.fields] == ["ts_year", "ts_month", "id_bucket", "region_identity"]
    alone = build_spec([day("ts")], SCHEMA, KEY, IDS)
    assert alone.fields[0].field_id == "ts_day"
    custom = build_spec(expression("col0", ["id"], result_type="int64", field_id="mine"), SCHEMA, KEY, IDS)
    assert custom.fields[0].field_id == "mine"


def test_two_fields_of_the_same_name_are_refused() -> None:
    with pytest.raises(ShardingError, match="two shard values are called 'id_bucket'"):
        build_spec([bucket("id", 4), bucket("id", 8)], SCHEMA, KEY, IDS)
    spec = build_spec([bucket("id", 4), bucket("id", 8, field_id="coarse")], SCHEMA, KEY, IDS)
    assert [one.field_id for one in spec.fields] == ["id_bucket", "coarse"]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ([], "nothing to shard by"),
        ([unsharded(), bucket("id", 4)], "cannot be combined"),
        (["id"], "must be made with"),
        ([year("id")], "cannot take a column"),
    ],
)
def test_malformed_requests_are_refused(wanted: list[ShardBy], message: str) -> None:
    with pytest.raises(ShardingError, match=message):
        build_spec(wanted, SCHEMA, KEY, IDS)
    with pytest.raises(SchemaError):
        build_spec(bucket("nope", 4), SCHEMA, KEY, IDS)
    with pytest.raises(ShardingError, match="1 or more"):
        build_spec(bucket("id", 4), SCHEMA, KEY, IDS, spec_id=0)


@pytest.mark.parametrize(
    ("wanted", "note"),
    [
        ([year("ts")], "transform 'year'"),
        ([multi_bucket(["id"], 4)], "transform 'multi_bucket'"),
        ([bucket("id", 4), truncate("region", 2)], "transform 'truncate'"),
        ([expression("col0", ["id"], result_type="int64")], "custom expressions"),
        ([bucket("price", 4)], "no hash for a decimal"),
        ([identity("ts")], "takes no timestamp:us:UTC column"),
        ([bucket("ts", 4)], ""),
        ([bucket("id", 4), identity("region")], ""),
    ],
    ids=lambda value: value if isinstance(value, str) else ", ".join(map(str, value)),
)
def test_what_the_library_cannot_route_is_told(wanted: list[ShardBy], note: str) -> None:
    spec = build_spec(wanted, SCHEMA, KEY, IDS)
    assert library_supports(spec) == (not note)
    assert note in library_note(spec)


@pytest.mark.parametrize(
    "data_type",
    [
        *(pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.string()),
        *(pa.large_string(), pa.binary(), pa.binary(4), pa.date32(), pa.date64(), pa.time32("s")),
        *(pa.time64("ns"), pa.timestamp("ns", "Europe/Berlin"), pa.decimal128(9, 2), pa.duration("s")),
    ],
    ids=str,
)
@pytest.mark.parametrize("transform", ["bucket", "identity"])
def test_the_notes_agree_with_the_library(data_type: pa.DataType, transform: str) -> None:
    schema = pa.schema([("c", data_type)])
    dataset = lance.write_dataset(schema.empty_table(), "memory://")
    try:
        if transform == "bucket":
            dataset.initialize_mem_wal(bucket_column="c", num_buckets=4)
        else:
            dataset.initialize_mem_wal(identity_column="c")
        accepted = True
    except OSError:
        accepted = False
    wanted = bucket("c", 4) if transform == "bucket" else identity("c")
    assert library_supports(build_spec(wanted, schema, ["c"], {"c": 0})) == accepted


def test_unknown_transforms_are_described_and_not_guessed() -> None:
    newer = ShardSpec(1, (ShardFieldSpec("z", (0,), "zorder", None, "int64"),))
    assert describe_spec(newer, IDS) == "zorder(...)"
    assert not library_supports(newer)
    with pytest.raises(ShardingError, match="unknown shard transform 'zorder'"):
        read_spec(newer, IDS)
    assert describe_spec(ShardSpec(0, ()), IDS) == "by hand"


def test_columns_that_are_gone_are_described_by_their_id() -> None:
    spec = build_spec(bucket("region", 4), SCHEMA, KEY, IDS)
    assert describe_spec(spec, {"id": 0}) == "bucket(<field 1>, 4)"


def test_spec_ids_are_never_used_again() -> None:
    assert next_spec_id(IndexDetails()) == 1
    first = build_spec(bucket("id", 4), SCHEMA, KEY, IDS)
    assert next_spec_id(IndexDetails(shard_specs=(first,))) == 2
    assert next_spec_id(IndexDetails(shard_specs=(replace(first, spec_id=5), first))) == 6


def test_spec_ids_are_seen_in_the_manifests_of_shards() -> None:
    orphan = ShardManifest(UUID(int=1), 1, shard_spec_id=9)
    assert next_spec_id(IndexDetails(), [orphan]) == 10
