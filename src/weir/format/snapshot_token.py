"""A snapshot token: one state of a table, as a value that fits in a line of text.

It names the version of the base table and, for every shard, a version of its manifest and the last WAL entry
that counts. All of these are immutable, so the token means the same rows for as long as they are stored. A
process that has slept for very long may put another manifest in place of a collected one, so the token has
the beginning of the random stamp that distinguishes commits. A version of the base table that was lost in a
power failure leaves its number to another, so the token has the beginning of that stamp too. A restored
backup leaves the positions after it to other entries, so the token has the beginning of the last one's write
id.

The text is ``w5.`` and, in base64 for URLs without padding, these bytes:

=====================  =============================================================================
bytes                  value
=====================  =============================================================================
1                      flags: 1 the identity of the table is a UUID, 2 the version of the base table
                       is told from others of its number, 4 there is a pin, 8 there is an instant,
                       16 some manifests have a write id, 32 all have, 64 some entries have one, 128 all
16, or varint, text    identity of the table: a UUID, or length in bytes and UTF-8
varint                 version of the base table, 0 for none
4 (flag 2)             the first bytes of that version's identity
16 (flag 4)            id of the pin
varint                 number of shards; for each, by ascending id:
varint, 16 if it is 0  ... its id: 1 that of the shard of a table without a rule, N + 2 that of bucket N, as
                       LanceDB derives them; 0 another one, which follows
varint                 ... version of its manifest, 0 for none
varint                 ... writer epoch in that manifest
varint                 ... first WAL position that no generation of that manifest covers
varint                 ... how many positions from there on count
1 (flag 16, not 32)    ... whether the manifest has a write id
4 (flag 16)            ... the first bytes of the manifest's write id, if it has one
1 (flag 64, not 128)   ... whether the entry at the last position has a write id
4 (flag 64)            ... the first bytes of it, if it has one
varint (flag 8)        the instant at which it is judged which rows have expired, in microseconds since 1970
4                      XXH32, seed 0, of everything before, big-endian
=====================  =============================================================================

A varint is the number in groups of 7 bits, lowest first, with the high bit set on all but the last. Pins,
tags and consumers that were stored before have texts that begin with ``w1.`` to ``w4.``, and are read.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import STRICT, IntFlag
from uuid import UUID

import xxhash

from weir.errors import InputError
from weir.format.byte_values import ByteReader, varint
from weir.format.lancedb_shards import MOST_BUCKETS, UNSHARDED, bucket_shard_id, number_of_bucket

__all__ = ["STAMP_BYTES", "ShardCut", "SnapshotToken", "entry_stamp", "instant_of"]

STAMP_BYTES = 4
"""Bytes in a token of a manifest's and an entry's write id, and of the stamp of a base table version."""

_PREFIX = "w5."
_PREFIXES_BEFORE = ("w4.", "w3.", "w2.", "w1.")
_CHECKSUM_BYTES = 4
_UUID_BYTES = 16
_LIMIT = 1 << 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# How an id is written: in full after this, or as its source.
_OTHER_ID, _UNSHARDED, _FIRST_BUCKET = 0, 1, 2


class _Flags(IntFlag, boundary=STRICT):
    """What a token has."""

    TABLE_IS_UUID = 1
    BASE_STAMP = 2
    PIN = 4
    INSTANT = 8
    SOME_STAMPS = 16
    ALL_STAMPS = 32
    SOME_ENTRIES = 64
    ALL_ENTRIES = 128


@dataclass(frozen=True, slots=True)
class ShardCut:
    """Where a token cuts one shard.

    Parameters
    ----------
    shard_id : UUID
        The shard.
    manifest_version : int
        Version of the shard manifest that lists the generations to read; 0 for the state before the first
        one.
    epoch : int
        Writer epoch in that manifest.
    first_position : int
        First WAL position not covered by a generation of that manifest.
    position : int
        Last WAL position to read; ``first_position - 1`` or more.
    stamp : bytes, default b""
        The first 4 bytes of that manifest's write id; empty if unknown, or if it has none.
    entry : bytes, default b""
        The first 4 bytes of the write id of the entry at ``position``; empty if unknown, or if it has none.
    """

    shard_id: UUID
    manifest_version: int
    epoch: int
    first_position: int
    position: int
    stamp: bytes = b""
    entry: bytes = b""

    def __post_init__(self) -> None:
        """Check the numbers."""
        for what, stamp in (("a manifest", self.stamp), ("an entry", self.entry)):
            if len(stamp) not in (0, STAMP_BYTES):
                raise InputError(f"the stamp of {what} has {STAMP_BYTES} bytes, not {len(stamp)}")
        for name in ("manifest_version", "epoch", "first_position", "position"):
            value = getattr(self, name)
            if not 0 <= value < _LIMIT:
                raise InputError(f"{name} of a token is {value}, which does not fit in 64 unsigned bits")
        if self.position < self.first_position - 1:
            raise InputError(
                f"a token cannot end at WAL position {self.position} and start at {self.first_position}"
            )

    def at(self, position: int, entry: bytes = b"") -> ShardCut:
        """Return the cut at another position of the same log, at which that entry is."""
        return replace(self, position=position, entry=entry)


@dataclass(frozen=True, slots=True)
class SnapshotToken:
    """One state of a table, for reading it again later. Made by :meth:`weir.Table.snapshot`.

    ``str(token)`` is text that fits in a file or a URL; :meth:`parse` reads it.

    Parameters
    ----------
    table : str
        Identity of the table.
    base_version : int
        Version of the base table. 0 in a token that only marks a position in the change feed.
    shards : tuple of ShardCut
        Where each shard is cut, by shard id. A missing shard had no rows.
    pin : str, optional
        Id of the pin by which storage keeps what the token needs; None if it is not pinned.
    base_stamp : bytes, default b""
        The first 4 bytes of what distinguishes that version of the base table from others with its number;
        empty if unknown.
    instant : int or None, default None
        The instant at which expiry is judged, in microseconds since 1970; None if the table's rows do not
        expire.
    """

    table: str
    base_version: int
    shards: tuple[ShardCut, ...]
    pin: str | None = None
    base_stamp: bytes = b""
    instant: int | None = None

    def __post_init__(self) -> None:
        """Check what the text could not hold."""
        if len(self.base_stamp) not in (0, STAMP_BYTES):
            raise InputError(f"the stamp of a version has {STAMP_BYTES} bytes, not {len(self.base_stamp)}")
        if not 0 <= self.base_version < _LIMIT:
            raise InputError(f"a token cannot have the base version {self.base_version}")
        if self.instant is not None and not 0 <= self.instant < _LIMIT:
            raise InputError(f"a token cannot have the instant {self.instant}")
        ids = [cut.shard_id for cut in self.shards]
        if ids != sorted(set(ids)):
            raise InputError("the shards of a token must be in ascending order, each once")
        if self.pin is not None and _parsed_pin(self.pin) is None:
            raise InputError(f"{self.pin[:60]!r} is not the id of a pin: 32 hex digits are expected")

    @classmethod
    def parse(cls, text: str) -> SnapshotToken:
        """Return the token whose text this is.

        Raises
        ------
        InputError
            If it is not the text of a token, or not all of it.

        Examples
        --------
        >>> token = SnapshotToken("3f2a", 7, (ShardCut(UUID(int=5), 2, 1, 4, 9),))
        >>> text = str(token)
        >>> text
        'w5.AAQzZjJhBwEAAAAAAAAAAAAAAAAAAAAABQIBBAbxV9Tc'
        >>> SnapshotToken.parse(text) == token
        True
        """
        prefixes = (_PREFIX, *_PREFIXES_BEFORE)
        if not isinstance(text, str) or not text.startswith(prefixes):
            raise _not_a_token(text, f"it does not begin with {_PREFIX}")
        prefix, encoded = text[: len(_PREFIX)], text[len(_PREFIX) :]
        try:
            data = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
        except (ValueError, binascii.Error) as error:
            raise _not_a_token(text, str(error)) from error
        body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
        if xxhash.xxh32_digest(body) != checksum:
            raise _not_a_token(text, "its checksum is wrong, so part of it is missing or has changed")
        try:
            token = _decoded(body) if prefix == _PREFIX else _decoded_before(body, prefix)
        except (IndexError, ValueError) as error:
            raise _not_a_token(text, str(error)) from error
        if prefix == _PREFIX and str(token) != text:
            raise _not_a_token(text, "the same token has another text")
        return token

    def __str__(self) -> str:
        """Return the text that :meth:`parse` reads: letters, digits, ``.``, ``-`` and ``_``."""
        body = bytearray(_encoded(self))
        body += xxhash.xxh32_digest(bytes(body))
        return _PREFIX + base64.urlsafe_b64encode(body).rstrip(b"=").decode()

    def cut_of(self, shard_id: UUID) -> ShardCut | None:
        """Return where a shard is cut, or None if it had no rows."""
        return next((cut for cut in self.shards if cut.shard_id == shard_id), None)

    @property
    def read_at(self) -> datetime | None:
        """The instant at which expiry is judged; None if the table's rows do not expire."""
        return None if self.instant is None else _EPOCH + timedelta(microseconds=self.instant)

    def unpinned(self) -> SnapshotToken:
        """Return the token of the same state without its pin."""
        return self if self.pin is None else replace(self, pin=None)


def entry_stamp(write_id: str | None) -> bytes:
    """Return what a token has of the write id of an entry.

    Examples
    --------
    >>> entry_stamp("61626364" * 4), entry_stamp(None)
    (b'abcd', b'')
    """
    return b"" if write_id is None else bytes.fromhex(write_id)[:STAMP_BYTES]


def instant_of(moment: datetime) -> int:
    """Return a moment as tokens have it: microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _parsed_pin(text: str) -> bytes | None:
    try:
        data = bytes.fromhex(text)
    except (ValueError, TypeError):
        return None
    return data if len(data) == _UUID_BYTES and data.hex() == text else None


def _not_a_token(text: object, reason: str) -> InputError:
    return InputError(
        f"{str(text)[:60]!r} is not the text of a snapshot token: {reason}",
        where="token",
        hint="Pass what str(token) returned, whole",
    )


def _encoded(token: SnapshotToken) -> bytes:
    table_id = _uuid_of(token.table)
    stamps = [bool(cut.stamp) for cut in token.shards]
    entries = [bool(cut.entry) for cut in token.shards]
    flags = _Flags(0)
    for flag, is_set in (
        (_Flags.TABLE_IS_UUID, table_id is not None),
        (_Flags.BASE_STAMP, bool(token.base_stamp)),
        (_Flags.PIN, token.pin is not None),
        (_Flags.INSTANT, token.instant is not None),
        (_Flags.SOME_STAMPS, any(stamps)),
        (_Flags.ALL_STAMPS, any(stamps) and all(stamps)),
        (_Flags.SOME_ENTRIES, any(entries)),
        (_Flags.ALL_ENTRIES, any(entries) and all(entries)),
    ):
        flags |= flag if is_set else 0
    table = token.table.encode()
    parts = [bytes([flags]), table_id.bytes if table_id else varint(len(table)) + table]
    parts += [varint(token.base_version), token.base_stamp, bytes.fromhex(token.pin or "")]
    parts.append(varint(len(token.shards)))
    for cut in token.shards:
        parts += [_shard_id_bytes(cut.shard_id), varint(cut.manifest_version), varint(cut.epoch)]
        parts += [varint(cut.first_position), varint(cut.position + 1 - cut.first_position)]
        for stamp, some, every in (
            (cut.stamp, _Flags.SOME_STAMPS, _Flags.ALL_STAMPS),
            (cut.entry, _Flags.SOME_ENTRIES, _Flags.ALL_ENTRIES),
        ):
            if flags & some and not flags & every:
                parts.append(bytes([bool(stamp)]))
            parts.append(stamp)
    parts.append(b"" if token.instant is None else varint(token.instant))
    return b"".join(parts)


def _decoded(body: bytes) -> SnapshotToken:
    data = ByteReader(body)
    flags = _Flags(data.take(1)[0])
    if flags & _Flags.TABLE_IS_UUID:
        table = str(UUID(bytes=data.take(_UUID_BYTES)))
    else:
        table = data.take(data.varint()).decode()
    base_version = data.varint()
    base_stamp = data.take(STAMP_BYTES) if flags & _Flags.BASE_STAMP else b""
    pin = data.take(_UUID_BYTES).hex() if flags & _Flags.PIN else None
    shards = []
    for _ in range(data.varint()):
        shard_id = _next_shard_id(data)
        manifest_version, epoch, first_position, count = (data.varint() for _ in range(4))
        stamp = _next_stamp(data, flags, _Flags.SOME_STAMPS, _Flags.ALL_STAMPS)
        entry = _next_stamp(data, flags, _Flags.SOME_ENTRIES, _Flags.ALL_ENTRIES)
        last = first_position + count - 1
        shards.append(ShardCut(shard_id, manifest_version, epoch, first_position, last, stamp, entry))
    instant = data.varint() if flags & _Flags.INSTANT else None
    if not data.is_used_up:
        raise ValueError("data follows its end")
    return SnapshotToken(table, base_version, tuple(shards), pin, base_stamp, instant)


def _next_stamp(data: ByteReader, flags: _Flags, some: _Flags, every: _Flags) -> bytes:
    has_stamp = bool(flags & every)
    if flags & some and not has_stamp:
        has_stamp = data.take(1) != b"\0"
    return data.take(STAMP_BYTES) if has_stamp else b""


def _uuid_of(text: str) -> UUID | None:
    """Return the UUID that a text is in its usual form, None if it is none."""
    try:
        found = UUID(text)
    except ValueError:
        return None
    return found if str(found) == text else None


def _shard_id_bytes(shard_id: UUID) -> bytes:
    if shard_id == UNSHARDED:
        return varint(_UNSHARDED)
    bucket = number_of_bucket(shard_id)
    return varint(_OTHER_ID) + shard_id.bytes if bucket is None else varint(_FIRST_BUCKET + bucket)


def _next_shard_id(data: ByteReader) -> UUID:
    kind = data.varint()
    if kind == _OTHER_ID:
        return UUID(bytes=data.take(_UUID_BYTES))
    if kind >= _FIRST_BUCKET + MOST_BUCKETS:
        raise ValueError("it has a shard of an impossible bucket")
    return UNSHARDED if kind == _UNSHARDED else bucket_shard_id(kind - _FIRST_BUCKET)


def _decoded_before(body: bytes, prefix: str) -> SnapshotToken:
    """Return the token of a text of older form: all ids in full, and without what later forms added."""
    data = ByteReader(body)
    table = data.take(data.varint()).decode()
    base_version = data.varint()
    with_identity = prefix in ("w4.", "w3.")
    base_stamp = data.take(STAMP_BYTES) if with_identity and data.take(1) != b"\0" else b""
    pin = data.take(_UUID_BYTES).hex() if data.take(1) != b"\0" else None
    shards = []
    for _ in range(data.varint()):
        shard_id = UUID(bytes=data.take(_UUID_BYTES))
        manifest_version, epoch, first_position, count = (data.varint() for _ in range(4))
        stamp = data.take(STAMP_BYTES) if prefix != "w1." and data.take(1) != b"\0" else b""
        last = first_position + count - 1
        shards.append(ShardCut(shard_id, manifest_version, epoch, first_position, last, stamp))
    instant = data.varint() if prefix == "w4." else None
    if not data.is_used_up:
        raise ValueError("data follows its end")
    return SnapshotToken(table, base_version, tuple(shards), pin, base_stamp, instant)
