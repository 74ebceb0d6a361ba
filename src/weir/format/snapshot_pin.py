"""The pin of a snapshot token, which makes garbage collection keep what the token needs.

One JSON object per pin, ``_weir/snapshots/{id}.json``, written once and deleted when the token is
released. Weir's own; the spec knows no tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from weir.errors import InputError
from weir.format import checked_json
from weir.format.buffers import Bytes
from weir.format.json_members import JsonMembers, instant_text
from weir.format.layout import check_name
from weir.format.snapshot_token import SnapshotToken

__all__ = ["SNAPSHOTS", "SnapshotPin", "decode", "encode", "pin_path"]

SNAPSHOTS = "_weir/snapshots"
"""Directory of the pins, relative to the table root."""


@dataclass(frozen=True, slots=True)
class SnapshotPin:
    """A token that storage keeps readable for a while.

    Parameters
    ----------
    token : SnapshotToken
        The token; it has the id of this pin.
    created_at, expires_at : datetime
        Since when and until when, in UTC.
    """

    token: SnapshotToken
    created_at: datetime
    expires_at: datetime

    def __post_init__(self) -> None:
        """Check that the token names a pin."""
        if self.token.pin is None:
            raise InputError("a pin needs a token with an id")


def pin_path(pin: str) -> str:
    """Return the path of a pin.

    Examples
    --------
    >>> pin_path("0" * 32)
    '_weir/snapshots/00000000000000000000000000000000.json'
    """
    return f"{SNAPSHOTS}/{check_name(pin)}.json"


def encode(pin: SnapshotPin) -> bytes:
    """Return the bytes of a pin."""
    return checked_json.encode(
        {
            "token": str(pin.token),
            "created_at": instant_text(pin.created_at),
            "expires_at": instant_text(pin.expires_at),
        }
    )


def decode(data: Bytes, *, where: str) -> SnapshotPin:
    """Return the pin stored as ``data``. Members that only a later version of Weir knows are ignored.

    Raises
    ------
    CorruptionError
        If the bytes are damaged (invariant I11).
    """
    members = JsonMembers("pin", checked_json.decode(data, where=where), where)
    token = members.token("token")
    if token.pin is None:
        raise members.invalid("token")
    return SnapshotPin(token, members.instant("created_at"), members.instant("expires_at"))
