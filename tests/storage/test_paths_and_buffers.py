"""What names an object, and what holds bytes."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.kit import BAD_PATHS, ODD_NAMES
from weir.errors import UriError
from weir.storage import paths
from weir.storage.buffers import byte_view, parts_of, size_of
from weir.storage.paths import check_path, check_prefix, is_reserved


@pytest.mark.parametrize("path", ODD_NAMES)
def test_paths(path: str) -> None:
    assert check_path(path) == path
    assert check_prefix(path) == check_prefix(path + "/") == path


@pytest.mark.parametrize("path", BAD_PATHS)
def test_bad_paths(path: str) -> None:
    with pytest.raises(UriError) as caught:
        check_path(path)
    assert caught.value.hint


def test_prefixes() -> None:
    assert check_prefix("") == check_prefix("/") == ""
    for prefix in ("//", "a//", "/a", "..", "../"):
        with pytest.raises(UriError):
            check_prefix(prefix)


@given(st.text())
def test_accepted_paths_stay_below_the_root(path: str) -> None:
    try:
        check_path(path)
    except UriError:
        return
    parts = path.split("/")
    assert all(part not in ("", ".", "..") and not is_reserved(part) for part in parts)
    path.encode()


@given(st.text("aB0_-./#~\0\n é", max_size=12) | st.from_regex(r"[a-z./#0-9_-]{0,12}", fullmatch=True))
def test_what_is_taken_at_a_glance_is_taken_after_a_closer_look(path: str) -> None:
    def verdict() -> bool:
        try:
            return check_path(path) == path
        except UriError:
            return False

    with pytest.MonkeyPatch.context() as patch:
        quick = verdict()
        patch.setattr(paths, "_ORDINARY", re.compile(r"(?!)"))
        assert verdict() == quick


@given(st.lists(st.binary(max_size=50), max_size=10))
def test_views_and_sizes(contents: list[bytes]) -> None:
    kinds = [bytes, bytearray, memoryview, pa.py_buffer]
    parts = [kinds[index % 4](content) for index, content in enumerate(contents)]
    assert size_of(parts) == sum(map(len, contents))
    assert [bytes(byte_view(part)) for part in parts] == contents
    assert parts_of(parts) is parts


def test_views_do_not_copy() -> None:
    numbers = np.arange(6).reshape(2, 3)
    view = byte_view(numbers.data)
    numbers[0, 0] = 77
    assert bytes(view) == numbers.tobytes()
    assert size_of([numbers.data]) == numbers.nbytes
