from __future__ import annotations

import pytest

import weir
from weir.errors import ShardingError
from weir.sharding.shard_by import ShardBy
from weir.sharding.shard_text import parse_shard_by


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("bucket(id, 8)", [weir.bucket("id", 8)]),
        (" bucket ( id,8 ) ", [weir.bucket("id", 8)]),
        ("identity(region)", [weir.identity("region")]),
        (
            "year(ts), month(ts),day(ts), hour(ts)",
            [weir.year("ts"), weir.month("ts"), weir.day("ts"), weir.hour("ts")],
        ),
        ("truncate('first name', 3)", [weir.truncate("first name", 3)]),
        ('truncate("first name", 3)', [weir.truncate("first name", 3)]),
        ("multi_bucket(site, id, 16)", [weir.multi_bucket(["site", "id"], 16)]),
        ("unsharded()", [weir.unsharded()]),
        ("expression('col0 % 7', id, int64)", [weir.expression("col0 % 7", ["id"], result_type="int64")]),
        (
            "expression('concat(col0, ''-'', col1)', a, b, utf8)",
            [weir.expression("concat(col0, '-', col1)", ["a", "b"], result_type="utf8")],
        ),
        (
            "identity(region, immutable=true, field_id=where)",
            [weir.identity("region", immutable=True, field_id="where")],
        ),
        ("bucket(id, 8, immutable=false)", [weir.bucket("id", 8)]),
    ],
)
def test_text_means_what_the_constructors_make(text: str, meant: list[ShardBy]) -> None:
    assert list(parse_shard_by(text)) == meant


def test_an_unknown_transform_names_the_known_ones() -> None:
    with pytest.raises(ShardingError) as caught:
        parse_shard_by("hash(id)")
    assert "unknown shard transform 'hash'" in str(caught.value)
    for name in (
        "bucket",
        "identity",
        "year",
        "month",
        "day",
        "hour",
        "truncate",
        "multi_bucket",
        "expression",
    ):
        assert name in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a transform"),
        ("bucket", "expected '('"),
        ("bucket(id", "expected ','"),
        ("bucket(id, 8) year(ts)", "expected ','"),
        ("bucket(id)", "a column and a number"),
        ("bucket(a, b, 8)", "a column and a number"),
        ("bucket(id, eight)", "'eight' is not a whole number"),
        ("bucket(id, 0)", "0"),
        ("multi_bucket(8)", "columns and a number"),
        ("identity()", "one column"),
        ("year(a, b)", "one column"),
        ("unsharded(id)", "takes nothing"),
        ("expression('col0')", "the SQL, its columns"),
        ("identity(a, forever=true)", "unknown shard option 'forever'"),
        ("identity(a, immutable=perhaps)", "true or false"),
        ("truncate('name, 3)", "cannot be read"),
    ],
)
def test_text_that_is_wrong_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(ShardingError) as caught:
        parse_shard_by(text)
    assert said in str(caught.value)
