"""The text of a token: it comes back as it was, and nothing else is taken for one."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from typing import Any
from uuid import UUID

import hypothesis.strategies as st
import pytest
import xxhash
from hypothesis import given

from weir.errors import InputError
from weir.format.lancedb_shards import MOST_BUCKETS, UNSHARDED, bucket_shard_id
from weir.format.snapshot_token import ShardCut, SnapshotToken

NUMBERS = st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1))


@st.composite
def cuts(draw: st.DrawFn) -> ShardCut:
    first, position = sorted([draw(NUMBERS), draw(NUMBERS)])
    if draw(st.booleans()) and position:
        first = position + 1 if position < 2**64 - 1 else position
    stamp = draw(st.just(b"") | st.binary(min_size=4, max_size=4))
    derived = st.just(UNSHARDED) | st.integers(0, MOST_BUCKETS - 1).map(bucket_shard_id)
    entry = draw(st.just(b"") | st.binary(min_size=4, max_size=4))
    return ShardCut(draw(st.uuids() | derived), draw(NUMBERS), draw(NUMBERS), first, position, stamp, entry)


TOKENS = st.builds(
    SnapshotToken,
    table=st.text(max_size=60) | st.uuids().map(str),
    base_version=NUMBERS,
    shards=st.lists(cuts(), max_size=5, unique_by=lambda cut: cut.shard_id).map(
        lambda found: tuple(sorted(found, key=lambda cut: cut.shard_id))
    ),
    pin=st.none() | st.binary(min_size=16, max_size=16).map(bytes.hex),
    base_stamp=st.just(b"") | st.binary(min_size=4, max_size=4),
    instant=st.none() | NUMBERS,
)
ONE = SnapshotToken("table", 3, (ShardCut(UUID(int=7), 2, 1, 4, 9, b"\1\2\3\4"),), "0f" * 16)


@given(token=TOKENS)
def test_the_text_comes_back_as_the_token(token: SnapshotToken) -> None:
    text = str(token)
    assert SnapshotToken.parse(text) == token
    assert re.fullmatch(r"[A-Za-z0-9._-]+", text)


@given(token=TOKENS, data=st.data())
def test_no_other_text_is_taken_for_it(token: SnapshotToken, data: st.DataObject) -> None:
    text = str(token)
    at = data.draw(st.integers(0, len(text) - 1))
    changed = data.draw(
        st.sampled_from([text[:at], text[:at] + text[at + 1 :], text[:at] + "A" + text[at:], text + "A"])
    )
    if changed != text:
        with pytest.raises(InputError, match="is not the text of a snapshot token"):
            SnapshotToken.parse(changed)


STORED_BEFORE = {
    "w5.AAQzZjJhBwEAAAAAAAAAAAAAAAAAAAAABQIBBAbxV9Tc": SnapshotToken(
        "3f2a", 7, (ShardCut(UUID(int=5), 2, 1, 4, 9),)
    ),
    "w1.BDNmMmEHAAEAAAAAAAAAAAAAAAAAAAAFAgEEBp-ho1U": SnapshotToken(
        "3f2a", 7, (ShardCut(UUID(int=5), 2, 1, 4, 9),)
    ),
    "w2.BXRhYmxlAwEPDw8PDw8PDw8PDw8PDw8PAQAAAAAAAAAAAAAAAAAAAAcCAQQGAQECAwSifvER": ONE,
    "w3.BXRhYmxlAwFhYmNkAQ8PDw8PDw8PDw8PDw8PDw8BAAAAAAAAAAAAAAAAAAAABwIBBAYBAQIDBA_EPL4": replace(
        ONE, base_stamp=b"abcd"
    ),
    "w4.BXRhYmxlAwABDw8PDw8PDw8PDw8PDw8PDwEAAAAAAAAAAAAAAAAAAAAHAgEEBgEBAgMEgID5wMHEggPYbPqN": replace(
        ONE, instant=1_700_000_000_000_000
    ),
}


@pytest.mark.parametrize("text", STORED_BEFORE)
def test_texts_that_were_stored_before_are_read(text: str) -> None:
    assert SnapshotToken.parse(text) == STORED_BEFORE[text]
    assert SnapshotToken.parse(str(STORED_BEFORE[text])) == STORED_BEFORE[text]


def test_one_token_has_one_text() -> None:
    """A shard that is derived is not written in full, nor a stamp said to be there in two ways."""
    body = bytes([0]) + b"\1t" + b"\1" + b"\1" + b"\0" + UNSHARDED.bytes + b"\1\1\1\1"
    padded = base64.urlsafe_b64encode(body + xxhash.xxh32_digest(body)).rstrip(b"=").decode()
    with pytest.raises(InputError, match="the same token has another text"):
        SnapshotToken.parse(f"w5.{padded}")


def test_a_token_of_twelve_buckets_is_short() -> None:
    cuts = (ShardCut(bucket_shard_id(number), 140, 3, 1200, 1290, b"abcd", b"efgh") for number in range(12))
    ordered = tuple(sorted(cuts, key=lambda cut: cut.shard_id))
    token = SnapshotToken("0f" * 4 + "-0000-4000-8000-" + "0f" * 6, 151, ordered, "0f" * 16, b"1234")
    assert len(str(token)) < 320
    assert SnapshotToken.parse(str(token)) == token


def test_the_stamp_of_the_version_is_read_back() -> None:
    bare = SnapshotToken("3f2a", 7, (), base_stamp=b"abcd")
    assert SnapshotToken.parse(str(bare)) == bare
    with pytest.raises(InputError, match="stamp of a version has 4 bytes"):
        replace(ONE, base_stamp=b"abc")


def test_every_changed_character_is_noticed() -> None:
    text = str(ONE)
    for at, character in enumerate(text):
        changed = text[:at] + ("B" if character != "B" else "C") + text[at + 1 :]
        with pytest.raises(InputError):
            SnapshotToken.parse(changed)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "w1.",
        "w2.AAAA",
        "w5.AAAA",
        "w5.",
        "w6.AAAA",
        "w4.AAAA",
        "w1.????",
        "w1.é",
        None,
        7,
        "w1." + "A" * 40,
    ],
)
def test_what_is_no_token(text: Any) -> None:
    with pytest.raises(InputError, match="is not the text of a snapshot token"):
        SnapshotToken.parse(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base_version": -1}, "base version"),
        ({"base_version": 2**64}, "base version"),
        ({"pin": "abc"}, "id of a pin"),
        ({"pin": "0F" * 16}, "id of a pin"),
        ({"shards": (ONE.shards[0], ONE.shards[0])}, "ascending order"),
    ],
)
def test_values_that_no_text_could_hold(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SnapshotToken(**{"table": "t", "base_version": 1, "shards": (), "pin": None, **change})
    with pytest.raises(InputError):
        ShardCut(UUID(int=1), 0, 0, 7, 5)
    with pytest.raises(InputError):
        ShardCut(UUID(int=1), 2**64, 0, 0, 0)
    with pytest.raises(InputError):
        ShardCut(UUID(int=1), 0, 0, 0, 0, b"123")
    with pytest.raises(InputError, match="stamp of an entry has 4 bytes"):
        ShardCut(UUID(int=1), 0, 0, 0, 0, entry=b"123")


def test_a_token_without_its_pin_is_of_the_same_state() -> None:
    assert ONE.unpinned().pin is None
    assert ONE.unpinned().unpinned() is not ONE
    assert (ONE.unpinned().table, ONE.unpinned().shards) == (ONE.table, ONE.shards)
    assert ONE.cut_of(UUID(int=7)) == ONE.shards[0]
    assert ONE.cut_of(UUID(int=8)) is None
