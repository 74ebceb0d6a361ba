"""What the tests against the released library share: none of its writers outlives its test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conformance import library


@pytest.fixture(autouse=True)
def _no_writer_is_left() -> Iterator[None]:
    yield
    library.close_writers()
