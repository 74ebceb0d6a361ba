from __future__ import annotations

import pytest

from weir.cli.text_values import parse_names, parse_storage_options, parse_vector
from weir.errors import OptionError


def test_names_are_parted_at_commas() -> None:
    assert parse_names(" a,b , c", "columns") == ["a", "b", "c"]
    with pytest.raises(OptionError, match="columns"):
        parse_names("a,,b", "columns")


def test_storage_options_may_hold_equals_signs() -> None:
    assert parse_storage_options(["key=a=b", "empty="]) == {"key": "a=b", "empty": ""}


@pytest.mark.parametrize("text", ["a-long-secret", "=a-long-secret"])
def test_a_storage_option_that_is_wrong_is_not_shown(text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_storage_options([text])
    assert "a-long-secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["[0.1", "7", "[" * 5_000])
def test_what_is_no_vector_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="vector"):
        parse_vector(text)
