"""Filters that are said to have a value for every row have one."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from tests.lsm.random_filters import FILTERS, ROWS, SCHEMA

from weir.errors import FilterError
from weir.lsm.filters import matching_rows
from weir.lsm.fitted_filter import fitted_filter
from weir.lsm.total_filter import is_total


def _fitted(text: str) -> str | None:
    """Return a filter as it is evaluated; None if it cannot be used at all."""
    try:
        matching_rows(ROWS.slice(0, 0), text)
        return fitted_filter(text, SCHEMA)
    except FilterError:
        return None


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    return lance.write_dataset(ROWS, str(tmp_path_factory.mktemp("rows") / "t"))


def test_a_total_filter_fails_on_no_row(stored: lance.LanceDataset) -> None:
    found = {True: 0, False: 0}

    @settings(max_examples=20 * settings().max_examples)
    @given(FILTERS)
    def check(text: str) -> None:
        fitted = _fitted(text)
        if fitted is None:
            return
        total = is_total(fitted, SCHEMA)
        found[total] += 1
        if total:
            stored.to_table(columns=["id"], filter=fitted)

    check()
    assert min(found.values()) > 10


@pytest.mark.parametrize(
    "text",
    [
        "id = 7 OR small BETWEEN -3 AND 3",
        "id IN (1, 2, 3) AND name IN ('x', 'y') AND NOT done",
        "ratio > 1.5 AND small < id",
        "name LIKE 'a%' AND name IS NOT NULL",
        "day >= '2026-01-01' AND at BETWEEN '2026-01-01' AND '2026-02-01'",
        "price IN (2.5, 3)",
        "done IS TRUE OR done = false",
    ],
)
def test_comparisons_are_total(text: str) -> None:
    assert is_total(fitted_filter(text, SCHEMA), SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        "CAST(name AS INT) > 5",
        "CAST(id AS TINYINT) > 5",
        "id / small > 3",
        "id + 1 > 3",
        # Looked at for the rows alone for which the first part is true.
        "id > 5 AND id > 1 / 0",
        "id > 5 AND at > to_timestamp('0001-01-01 00:00:00')",
        # What can be seen to be true of no row the library evaluates all the same.
        "id = 0 AND abs(small) = 0 AND id IN (7)",
        # Which of the two is made what the other is, is the library's to say.
        "name = 5",
        "day = name",
        "upper(name) = 'X'",
        'name = "x"',
        " OR ".join(["id = 1"] * 1000),
        "NOT " * 30 + "done",
        "id >",
    ],
)
def test_others_are_not_said_to_be(text: str) -> None:
    assert not is_total(text, SCHEMA)


def test_the_columns_decide() -> None:
    assert is_total("a = b", pa.schema({"a": pa.int32(), "b": pa.int64()}))
    assert not is_total("a = b", pa.schema({"a": pa.int32(), "b": pa.string()}))
