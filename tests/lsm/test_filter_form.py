"""Filters of one form: if the library takes one of them, it takes all."""

from __future__ import annotations

import lance
import pytest
from hypothesis import example, given, settings
from tests.lsm.random_filters import FILTERS, ROWS, SCHEMA

from weir.errors import FilterError
from weir.lsm.filter_form import filter_form
from weir.lsm.filters import check_filter, matching_rows


def _can_be_used(text: str) -> bool:
    try:
        # Some filters of rows are not left to the library.
        matching_rows(ROWS.slice(0, 0), text)
        matching_rows(ROWS, text)
    except FilterError:
        return False
    return True


@settings(max_examples=10 * settings().max_examples)
@given(FILTERS)
@example("length('x') = name")
@example("name = 'x' 'y'")
@example("id -7 = 3")
@example("small = 7222222222222222222 OR small = -7")
@example("small BETWEEN 123456789012345678 AND NULL")
def test_what_is_taken_in_one_form_is_taken(text: str) -> None:
    form = filter_form(text, SCHEMA)
    assert filter_form(form, SCHEMA) == form
    if form != text and _can_be_used(form):
        assert _can_be_used(text), form


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("name = 'Ada Lovelace' AND length LIKE '%x_'", "name = 'a' AND length LIKE 'a'"),
        ("id = 7 AND (small < -12 OR NOT ratio >= 3)", "id = 1 AND (small < 1 OR NOT ratio >= 1)"),
        ("id = 5000000000", "id = 1000000000000000000"),
        ("done AND name = 'x'", "done AND name = 'a'"),
        ("`name` IN ('x', 'y')", "`name` IN ('a', 'a')"),
        # As good as each other they are only where the column takes all of them.
        ("done = 7", "done = 7"),
        ("day = 'x'", "day = 'x'"),
        ("id = '7' AND name = '7'", "id = '7' AND name = '7'"),
        ("name = 'it''s'", "name = 'it''s'"),
        (r"name = '\'", r"name = '\'"),
        ("length(name) = 7", "length(name) = 7"),
        ("id - 7 = 3", "id - 7 = 3"),
        # Ids of events, in whatever else.
        ("abs(id) > 7222222222222222222", "abs(id) > 1000000000000000000"),
    ],
)
def test_form(text: str, form: str) -> None:
    assert filter_form(text, SCHEMA) == form


def test_an_error_names_the_filter_as_written() -> None:
    with pytest.raises(FilterError, match="'Ada Lovelace'"):
        check_filter(SCHEMA, "id = 'Ada Lovelace'")


def test_filters_of_one_form_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []
    write = lance.write_dataset

    def counted(*given: object, **named: object) -> object:
        written.append(given)
        return write(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(lance, "write_dataset", counted)
    for number in range(20):
        check_filter(SCHEMA, f"small = {number} AND name = 'x{number}'")
    # The library evaluates it as it is, and in parentheses.
    assert len(written) == 2
