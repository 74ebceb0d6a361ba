"""The store in memory."""

from __future__ import annotations

import itertools

import pytest

from tests.storage.kit import NewStore, StoreKit
from weir.errors import OptionError
from weir.storage.object_store import ObjectStoreBackend

_numbers = itertools.count()


class TestMemory(StoreKit):
    @pytest.fixture
    def new_store(self) -> NewStore:
        return lambda: ObjectStoreBackend(f"memory://test-{next(_numbers)}/täble")

    def test_same_name_is_the_same_store(self) -> None:
        ObjectStoreBackend("memory://shared/a").put("b", b"1")
        assert bytes(ObjectStoreBackend("memory://shared").get("a/b")) == b"1"

    def test_has_no_options(self) -> None:
        with pytest.raises(OptionError):
            ObjectStoreBackend("memory://shared", {"timeout": "1s"})
