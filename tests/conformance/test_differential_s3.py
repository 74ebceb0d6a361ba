"""Histories of the differential suite on an object store: everybody shows there what a dict does."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from obstore.store import S3Store
from tests.conformance.differential.history import history_of, run
from tests.conformance.differential.objects import ObjectPath
from tests.conformance.differential.world import World
from tests.storage.s3 import S3Endpoint, s3_endpoint

__all__ = ["s3_endpoint"]


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2)])
def test_everybody_shows_the_same(
    s3_endpoint: S3Endpoint, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_endpoint.options.items():
        monkeypatch.setenv(f"AWS_{name.removeprefix('aws_').upper()}", value)

    def in_a_bucket(seed: int) -> World:
        uri = s3_endpoint.new_uri("tables")
        return World(seed, cast(Path, ObjectPath(uri, S3Store.from_url(uri.rpartition("/")[0]))))

    failure = run(history_of(seed, 7), in_a_bucket)
    assert failure is None, f"{failure.history.steps[: failure.at + 1]}: {failure.error!r}"
