from __future__ import annotations

import base64

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.cli.base64_text import decode_base64, encode_base64

_VALUES = st.lists(st.none() | st.binary(max_size=9), max_size=12)


def _encoded(values: list[bytes | None]) -> list[str | None]:
    return [None if value is None else base64.b64encode(value).decode() for value in values]


@given(_VALUES, st.integers(0, 12), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_encoding_agrees_with_the_standard_library(
    values: list[bytes | None], start: int, data_type: pa.DataType
) -> None:
    encoded = encode_base64(pa.array(values, data_type)[start:])
    encoded.validate(full=True)
    assert encoded.to_pylist() == _encoded(values[start:])


@given(_VALUES, st.integers(0, 12), st.sampled_from([pa.string(), pa.large_string()]))
def test_decoding_agrees_with_the_standard_library(
    values: list[bytes | None], start: int, data_type: pa.DataType
) -> None:
    decoded = decode_base64(pa.array(_encoded(values), data_type)[start:])
    decoded.validate(full=True)
    assert decoded.to_pylist() == values[start:]


def test_values_of_fixed_size_are_encoded_too() -> None:
    assert encode_base64(pa.array([b"ab", None], pa.binary(2))).to_pylist() == ["YWI=", None]


@pytest.mark.parametrize("text", ["a", "ab=c", "====", "a===", "ab$=", "YWI=YWI=", "é===", "=aaa"])
def test_what_is_not_base64_is_refused(text: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match="not Base64"):
        decode_base64(pa.array(["YWI=", text]))
