"""An object store that fails, stumbles and repeats itself."""

from __future__ import annotations

import pytest

from tests.faults.failing_store import FailingStore
from tests.storage.s3 import S3Endpoint, s3_endpoint

__all__ = ["s3_endpoint"]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_store_that_stumbles(s3_endpoint: S3Endpoint, seed: int) -> None:
    failing = FailingStore(s3_endpoint, seed)
    failing.play()
    happened = [name for name in failing.counts if name.startswith("requests: ")]
    assert len(happened) > 4, "next to everything that can happen has happened"
    assert failing.counts["writes acknowledged"]
