"""The store that counts."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter

import pytest

from tests.storage.kit import NewStore, StoreKit, in_threads
from weir.errors import ObjectNotFoundError
from weir.storage.counting import CountingStore
from weir.storage.object_store import ObjectStoreBackend

_numbers = itertools.count()


def new_counting_store() -> CountingStore:
    return CountingStore(ObjectStoreBackend(f"memory://counted-{next(_numbers)}"))


class TestCountingChangesNothing(StoreKit):
    rounds = 4
    examples = 10

    @pytest.fixture
    def new_store(self) -> NewStore:
        return new_counting_store


def test_every_operation_is_counted_once() -> None:
    store = new_counting_store()
    store.put("a", b"1")
    store.put_if_absent("b", b"2")
    meta = store.head("a")
    assert meta is not None
    store.compare_and_swap("a", b"3", meta.version)
    store.get("a")
    store.get_range("a", 0, 1)
    store.list("")
    store.list_directories("")
    store.delete(["a", "b"])
    store.sync("")
    operations = "put put_if_absent head compare_and_swap get get_range list list_directories delete sync"
    assert store.counts == Counter(operations.split())
    store.reset()
    assert store.counts == Counter()


def test_failures_are_counted() -> None:
    store = new_counting_store()
    with pytest.raises(ObjectNotFoundError):
        store.get("a")
    assert store.counts == {"get": 1}


def test_counts_are_a_copy() -> None:
    store = new_counting_store()
    before = store.counts
    store.put("a", b"1")
    before["get"] += 5
    assert store.counts == {"put": 1}


def test_no_count_is_lost_between_threads() -> None:
    store = new_counting_store()
    in_threads([lambda: [store.head("a") for _ in range(2000)]] * 4)
    assert store.counts == {"head": 8000}


def test_counts_start_anew_where_the_store_is_unpickled() -> None:
    store = new_counting_store()
    store.put("a", b"1")
    again = pickle.loads(pickle.dumps(store))
    assert again.counts == Counter()
    assert bytes(again.get("a")) == b"1"
    assert store.counts == {"put": 1}
