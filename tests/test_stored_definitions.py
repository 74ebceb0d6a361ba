"""What says what a namespace, an event store or a key is: not a bit of it turns over unnoticed (I11)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import weir.events
import weir.namespaces
from weir.errors import CorruptionError, UnknownFeatureError
from weir.events.catalog import Catalog
from weir.format import checked_json
from weir.namespaces import Documents, Write, definition
from weir.service.keys import key as keys

Decode = Callable[[bytes, str], Any]


def of_a_namespace(root: Path) -> bytes:
    with weir.namespaces.open(root, fsync=False) as namespaces:
        namespaces.namespace("docs").write(Write(upserts=Documents.of_rows([{"id": 1, "title": "walrus"}])))
    return (root / "catalog" / "docs.json").read_bytes()


def of_an_event_store(root: Path) -> bytes:
    with weir.events.create(root / "store", fsync=False) as store:
        store.define("login", {"device": "string"})
        store.retain("login", timedelta(days=9))
    return max((root / "store" / ".weir-swaps" / "catalog.json").glob("*/*")).read_bytes()


def of_a_key(root: Path) -> bytes:
    return keys.encode(keys.new_key("first", keys.Role.READER, namespaces=["a*"])[0])


@pytest.mark.parametrize(
    ("make", "decode"),
    [(of_a_namespace, definition.decode), (of_an_event_store, Catalog.decode), (of_a_key, keys.decode)],
)
def test_every_flipped_bit_is_noticed(tmp_path: Path, make: Callable[[Path], bytes], decode: Decode) -> None:
    data = make(tmp_path)
    told = decode(data, "here")
    for at in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            try:
                found = decode(bytes(flipped), "here")
            except (CorruptionError, UnknownFeatureError) as error:
                assert error.where == "here"
            else:
                # White space between members.
                assert found == told
    members = json.loads(data)
    del members["checksum"]
    with pytest.raises(CorruptionError):
        decode(json.dumps(members).encode(), "here")
    # As they were stored before.
    if make is not of_an_event_store:
        assert decode(json.dumps(members | {"format": 1}).encode(), "here") == told


@pytest.mark.parametrize("former", [1, 2])
def test_an_event_store_without_calendars_is_refused(tmp_path: Path, former: int) -> None:
    """Looked for by their days, none of its events would be found."""
    members = checked_json.decode(of_an_event_store(tmp_path), where="here")
    with pytest.raises(UnknownFeatureError, match="before calendars"):
        Catalog.decode(checked_json.encode(members | {"format": former}, sort=False), "here")


def test_fields_stay_in_the_order_in_which_they_were_defined(tmp_path: Path) -> None:
    with weir.events.create(tmp_path / "store", fsync=False) as store:
        store.define("login", {"device": "string", "at": "datetime", "country": "string"})
    with weir.events.open(tmp_path / "store", fsync=False) as store:
        found = store.execute("QUERY login").to_table()
    assert found.column_names[-3:] == ["device", "at", "country"]
