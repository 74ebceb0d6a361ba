"""Values of attributes, as columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from weir.errors import InputError
from weir.namespaces import parse_type
from weir.namespaces.values import as_column, column_values


@pytest.mark.parametrize("whole", [2**53 + 1, 2**63, 10**30, -(10**300)])
def test_a_float_may_be_a_whole_number_of_any_size(whole: int) -> None:
    assert as_column("f", parse_type("float"), [whole, 0.5, None]).to_pylist() == [float(whole), 0.5, None]
    assert as_column("f", parse_type("[]float"), [[whole, 0.5], []]).to_pylist() == [[float(whole), 0.5], []]


def test_a_whole_number_that_no_float_has_is_refused() -> None:
    with pytest.raises(InputError, match="row 1: attribute 'f' is float, got int, which is out of range"):
        as_column("f", parse_type("float"), [0.5, 10**400])


@pytest.mark.parametrize(
    "spelled", ["550e8400-e29b-41d4-a716-446655440000", "550E8400E29B41D4A716446655440000"]
)
def test_a_uuid_has_hyphens_or_none_and_capitals_or_none(spelled: str) -> None:
    column = as_column("u", parse_type("uuid"), [spelled])
    assert column_values(pa.chunked_array([column])) == ["550e8400-e29b-41d4-a716-446655440000"]


@pytest.mark.parametrize(
    "spelled",
    [
        " 50e8400-e29b-41d4-a716-446655440000",
        "+50e8400-e29b-41d4-a716-446655440000",
        "5_0e8400-e29b-41d4-a716-446655440000",
        "\u066550e8400-e29b-41d4-a716-446655440000",
        "550e8400----e29b41d4a716446655440000",
        "550e8400-e29b41d4a716-446655440000--",
        "{550e8400-e29b-41d4-a716-44665544000}",
    ],
)
def test_what_is_only_nearly_a_uuid_is_refused(spelled: str) -> None:
    with pytest.raises(InputError, match="row 0: attribute 'u' is uuid"):
        as_column("u", parse_type("uuid"), [spelled])
