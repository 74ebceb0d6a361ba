"""Random filters, of which some are none."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import strategies as st

__all__ = ["FILTERS", "ROWS", "SCHEMA"]

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "small": pa.int32(),
        "ratio": pa.float32(),
        "name": pa.string(),
        "length": pa.string(),
        "done": pa.bool_(),
        "day": pa.date32(),
        "at": pa.timestamp("us"),
        "second": pa.timestamp("s"),
        "price": pa.decimal128(6, 2),
    }
)
ROWS = pa.Table.from_pylist(
    [
        {"id": 5, "small": 1, "ratio": 0.5, "name": "a", "done": True},
        {
            "id": 2**63 - 1,
            "small": -(2**31),
            "ratio": float("nan"),
            "name": "7",
            "length": "",
            "day": 0,
            "at": 2**62,
        },
        {
            "id": 0,
            "small": 0,
            "ratio": float("inf"),
            "name": r"\ %_'",
            "length": "2026-99-99",
            "price": 0,
            "at": -(2**62),
        },
        {},
    ],
    SCHEMA,
)
"""Rows on which what can fail does: overflows, zeros, texts that are no number."""

_LITERALS = [
    *("0", "7", "-7", "123456789012345678", "7222222222222222222", "9999999999999999999", "1.5", "1e3"),
    *(
        "'x'",
        "'nan'",
        "'7'",
        "'it''s'",
        "'2026-01-01'",
        "'2026-99-99'",
        "timestamp '2026-01-01 00:00:00'",
        "'(,'",
        r"'\'",
        "''",
        "true",
        "NULL",
    ),
]
_CALLS = [
    *("CAST(name AS INT)", "CAST(id AS TINYINT)", "TRY_CAST(name AS INT)", "abs(small)", "upper(name)"),
    *("id / small", "id + 1", "-small", "length(name)", "CAST(id AS DOUBLE)", "CAST('7' AS INT)", "day + 1"),
]
_WORDS = ["AND", "OR", "NOT", "IS NULL", "IS NOT NULL", "IN", "BETWEEN", "LIKE", "date", "x", "--", "-"]
_SIGNS = ["=", "<>", "!=", "<", "<=", ">", ">=", "(", ")", ",", "+", "/", "::int", '"name"', "`name`", "`no`"]


def _comparisons() -> st.SearchStrategy[str]:
    operand = st.sampled_from([*SCHEMA.names, *SCHEMA.names, *_CALLS])
    literal = st.sampled_from(_LITERALS)
    signs = st.sampled_from(["=", "<>", "<", ">=", " LIKE "])
    pairs = st.tuples(operand, signs, literal | operand).map("".join)
    lists = st.tuples(operand, st.lists(literal, min_size=1, max_size=3)).map(
        lambda one: f"{one[0]} IN ({', '.join(one[1])})"
    )
    ranges = st.tuples(operand, literal, literal).map(lambda one: f"{one[0]} BETWEEN {one[1]} AND {one[2]}")
    return pairs | lists | ranges


_PARTS = st.sampled_from([*SCHEMA.names, *_LITERALS, *_WORDS, *_SIGNS]) | _comparisons()
FILTERS = (
    st.lists(_comparisons(), min_size=1, max_size=3).map(" AND ".join)
    | st.lists(_comparisons(), min_size=1, max_size=3).map(" OR ".join)
    | st.lists(_PARTS, min_size=1, max_size=6).map(" ".join)
)
