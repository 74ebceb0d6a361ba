"""A snapshot token: one state of a table, as a value that fits in a line of text.

It names the version of the base table and, for every shard, a version of its manifest and the last WAL
entry that counts. All of these are immutable, so the token means the same rows for as long as they are
stored. A process that has slept for very long may put another manifest where a collected one was: of the
random stamp that tells commits apart the token has the beginning. A version of the base table that a loss of
power has taken leaves its number to another: of what tells these apart the token has the beginning too.

The text is ``w3.``, or ``w4.``, and, in base64 for URLs without padding, these bytes:

=====================  =============================================================================
bytes                  value
=====================  =============================================================================
varint, text           identity of the table: length in bytes, UTF-8
varint                 version of the base table, 0 for none
1, and then 4 or 0     1 and the first bytes of that version's identity, or 0 if it is not known
1, and then 16 or 0    1 and the id of the pin, or 0
varint                 number of shards; for each, by ascending id:
16                     ... its id
varint                 ... version of its manifest, 0 for none
varint                 ... writer epoch in that manifest
varint                 ... first WAL position that no generation of that manifest covers
varint                 ... how many positions from there on count
1, and then 4 or 0     ... 1 and the first bytes of the manifest's write id, or 0 if it has none
varint                 of ``w4.`` alone: the instant at which it is judged which rows have expired, in
                       microseconds since 1970
4                      XXH32, seed 0, of everything before, big-endian
=====================  =============================================================================

A varint is the number in groups of 7 bits, lowest first, with the high bit set on all but the last. Where
the identity of the version is not known, the text is ``w2.`` and the bytes without a place for it; where no
shard has a write id either, ``w1.`` and without a place for that too: as Weir made all tokens before there
were these.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import xxhash

from weir.errors import InputError

__all__ = ["STAMP_BYTES", "ShardCut", "SnapshotToken", "instant_of"]

STAMP_BYTES = 4
"""How much of a manifest's write id a token has, and of what tells versions of the base table apart."""

_WITH_INSTANT = "w4."
_WITH_IDENTITY = "w3."
_WITH_STAMPS = "w2."
_WITHOUT_STAMPS = "w1."
_CHECKSUM_BYTES = 4
_UUID_BYTES = 16
_LIMIT = 1 << 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ShardCut:
    """Where a token cuts one shard.

    Parameters
    ----------
    shard_id : UUID
        The shard.
    manifest_version : int
        Version of the shard manifest whose generations count; 0 for the state before the first one.
    epoch : int
        Writer epoch in that manifest.
    first_position : int
        First WAL position that no generation of that manifest covers.
    position : int
        Last WAL position that counts; ``first_position - 1`` or more.
    stamp : bytes, default b""
        The first 4 bytes of that manifest's write id; empty where it is not known, or has none.
    """

    shard_id: UUID
    manifest_version: int
    epoch: int
    first_position: int
    position: int
    stamp: bytes = b""

    def __post_init__(self) -> None:
        """Check the numbers."""
        if len(self.stamp) not in (0, STAMP_BYTES):
            raise InputError(f"the stamp of a manifest has {STAMP_BYTES} bytes, not {len(self.stamp)}")
        for name in ("manifest_version", "epoch", "first_position", "position"):
            value = getattr(self, name)
            if not 0 <= value < _LIMIT:
                raise InputError(f"{name} of a token is {value}, which does not fit in 64 unsigned bits")
        if self.position < self.first_position - 1:
            raise InputError(
                f"a token cannot end at WAL position {self.position} and start at {self.first_position}"
            )


@dataclass(frozen=True, slots=True)
class SnapshotToken:
    """One state of a table, to be read again later. Made by :meth:`weir.Table.snapshot`.

    ``str(token)`` is text for a file, a URL or another process; :meth:`parse` reads it.

    Parameters
    ----------
    table : str
        Identity of the table.
    base_version : int
        Version of the base table. 0 in a token that marks a place in the change feed alone.
    shards : tuple of ShardCut
        Where each shard is cut, by ascending shard id. A shard that is not there had no rows.
    pin : str, optional
        Id under which storage keeps what the token needs; None if nothing does.
    base_stamp : bytes, default b""
        The first 4 bytes of what tells that version of the base table from others of its number; empty where
        it is not known.
    instant : int or None, default None
        When it is judged which rows have expired, in microseconds since 1970; None of a table whose rows do
        not.
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
        'w1.BDNmMmEHAAEAAAAAAAAAAAAAAAAAAAAFAgEEBp-ho1U'
        >>> SnapshotToken.parse(text) == token
        True
        """
        prefixes = (_WITH_INSTANT, _WITH_IDENTITY, _WITH_STAMPS, _WITHOUT_STAMPS)
        if not isinstance(text, str) or not text.startswith(prefixes):
            raise _not_a_token(text, f"it begins with none of {', '.join(prefixes)}")
        encoded = text[len(_WITH_STAMPS) :]
        try:
            data = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
        except (ValueError, binascii.Error) as error:
            raise _not_a_token(text, str(error)) from error
        body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
        if xxhash.xxh32_digest(body) != checksum:
            raise _not_a_token(text, "its checksum is wrong, so part of it is missing or has changed")
        try:
            token = _decoded(body, text[: len(_WITH_STAMPS)])
        except (IndexError, ValueError) as error:
            raise _not_a_token(text, str(error)) from error
        if str(token) != text:
            raise _not_a_token(text, "the same token has another text")
        return token

    def __str__(self) -> str:
        """Return the text that :meth:`parse` reads: letters, digits, ``.``, ``-`` and ``_``."""
        table = self.table.encode()
        body = bytearray(_varint(len(table)) + table + _varint(self.base_version))
        if self.base_stamp:
            body += b"\1" + self.base_stamp
        elif self.instant is not None:
            body += b"\0"
        body += b"\0" if self.pin is None else b"\1" + bytes.fromhex(self.pin)
        body += _varint(len(self.shards))
        with_stamps = (
            bool(self.base_stamp) or self.instant is not None or any(cut.stamp for cut in self.shards)
        )
        for cut in self.shards:
            body += cut.shard_id.bytes
            body += _varint(cut.manifest_version) + _varint(cut.epoch) + _varint(cut.first_position)
            body += _varint(cut.position + 1 - cut.first_position)
            if with_stamps:
                body += b"\1" + cut.stamp if cut.stamp else b"\0"
        if self.instant is not None:
            body += _varint(self.instant)
        body += xxhash.xxh32_digest(bytes(body))
        prefix = _WITH_STAMPS if with_stamps else _WITHOUT_STAMPS
        prefix = _WITH_IDENTITY if self.base_stamp else prefix
        prefix = prefix if self.instant is None else _WITH_INSTANT
        return prefix + base64.urlsafe_b64encode(body).rstrip(b"=").decode()

    def cut_of(self, shard_id: UUID) -> ShardCut | None:
        """Return where a shard is cut, or None if it had no rows."""
        return next((cut for cut in self.shards if cut.shard_id == shard_id), None)

    @property
    def read_at(self) -> datetime | None:
        """The instant at which it is judged which rows have expired; None of a table whose rows do not."""
        return None if self.instant is None else _EPOCH + timedelta(microseconds=self.instant)

    def unpinned(self) -> SnapshotToken:
        """Return the token of the same state without its pin."""
        return self if self.pin is None else replace(self, pin=None)


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


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


class _Bytes:
    """The bytes of a token, taken one value after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_used_up(self) -> bool:
        return self._at == len(self._data)

    def take(self, count: int) -> bytes:
        part = self._data[self._at : self._at + count]
        if len(part) < count:
            raise ValueError("it ends too early")
        self._at += count
        return part

    def varint(self) -> int:
        number = shift = 0
        while True:
            (byte,) = self.take(1)
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > 63:
                raise ValueError("it holds a number of more than 64 bits")


def _decoded(body: bytes, prefix: str) -> SnapshotToken:
    data = _Bytes(body)
    table = data.take(data.varint()).decode()
    base_version = data.varint()
    with_stamps = prefix != _WITHOUT_STAMPS
    with_identity = prefix in (_WITH_INSTANT, _WITH_IDENTITY)
    base_stamp = data.take(STAMP_BYTES) if with_identity and data.take(1) != b"\0" else b""
    pin = data.take(_UUID_BYTES).hex() if data.take(1) != b"\0" else None
    shards = []
    for _ in range(data.varint()):
        shard_id = UUID(bytes=data.take(_UUID_BYTES))
        manifest_version, epoch, first_position, count = (data.varint() for _ in range(4))
        stamp = data.take(STAMP_BYTES) if with_stamps and data.take(1) != b"\0" else b""
        last = first_position + count - 1
        shards.append(ShardCut(shard_id, manifest_version, epoch, first_position, last, stamp))
    instant = data.varint() if prefix == _WITH_INSTANT else None
    if not data.is_used_up:
        raise ValueError("more follows after its end")
    return SnapshotToken(table, base_version, tuple(shards), pin, base_stamp, instant)
