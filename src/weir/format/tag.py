"""A tag: a name for one state of a table, which is kept until the tag is dropped.

One JSON object per tag, ``_weir/tags/{name}.json``, written once. Weir's own; the spec knows no tags. Tags of
the library name versions of the base table alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from weir.errors import OptionError
from weir.format import checked_json
from weir.format.buffers import Bytes
from weir.format.json_members import JsonMembers, instant_text
from weir.format.snapshot_token import SnapshotToken

__all__ = ["TAGS", "Tag", "decode", "encode", "is_tag_name", "tag_path"]

TAGS = "_weir/tags"
"""Directory of the tags, relative to the table root."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
# Texts that mean something else where a state is named: a token, and the oldest change.
_TAKEN = re.compile(r"w[0-9]+\..*|earliest", re.ASCII)


@dataclass(frozen=True, slots=True)
class Tag:
    """A named state of a table.

    Parameters
    ----------
    name : str
        Its name, which ``at=`` of every read accepts.
    token : SnapshotToken
        The state.
    created_at : datetime
        When the tag was made, in UTC.
    write_id : str
        Random: if the store's answer was lost, shows the creator that the stored tag is its own.
    """

    name: str
    token: SnapshotToken
    created_at: datetime
    write_id: str


def is_tag_name(text: str) -> bool:
    """Whether a tag may be called so.

    Examples
    --------
    >>> is_tag_name("before-import"), is_tag_name("w3.abc"), is_tag_name("../up")
    (True, False, False)
    """
    return _NAME.fullmatch(text) is not None and _TAKEN.fullmatch(text) is None


def tag_path(name: str) -> str:
    """Return the path of a tag.

    Raises
    ------
    OptionError
        If the name is not one.

    Examples
    --------
    >>> tag_path("before-import")
    '_weir/tags/before-import.json'
    """
    if not isinstance(name, str) or not is_tag_name(name):
        raise OptionError(
            f"{name!r:.60} is not the name of a tag",
            where="name",
            hint="Use 1 to 100 letters, digits, '.', '-' and '_', beginning with a letter or digit, and "
            "nothing that begins as the text of a token does",
        )
    return f"{TAGS}/{name}.json"


def encode(tag: Tag) -> bytes:
    """Return the bytes of a tag."""
    return checked_json.encode(
        {
            "name": tag.name,
            "token": str(tag.token),
            "created_at": instant_text(tag.created_at),
            "write_id": tag.write_id,
        }
    )


def decode(data: Bytes, *, where: str) -> Tag:
    """Return the tag stored as ``data``. Members that only a later version of Weir knows are ignored.

    Raises
    ------
    CorruptionError
        If the bytes are damaged (invariant I11).
    """
    members = JsonMembers("tag", checked_json.decode(data, where=where), where)
    name = members.text("name")
    if not is_tag_name(name):
        raise members.invalid("name")
    return Tag(name, members.token("token"), members.instant("created_at"), members.text("write_id"))
