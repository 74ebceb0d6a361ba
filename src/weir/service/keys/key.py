"""Keys: who may do what in which namespaces."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase

from weir.errors import CorruptionError, OptionError
from weir.format import checked_json

__all__ = ["ANYBODY", "Key", "Role", "decode", "encode", "new_key", "split"]

_FORMAT = 2
_UNCHECKED_FORMAT = 1
"""The same without a checksum."""
_SECRET_BYTES = 32
_KEY = re.compile(r"weir_([0-9a-f]{16})_([A-Za-z0-9_-]{43})\Z")
_GLOB = re.compile(r"[A-Za-z0-9\-_.*?\[\]!]{1,256}\Z")


class Role(StrEnum):
    """The role of a key. Each includes the permissions of those after it."""

    ADMIN = "admin"
    WRITER = "writer"
    READER = "reader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key, without its secret.

    Parameters
    ----------
    id : str
        16 hex digits, which are part of the key but not secret.
    name : str
        Its name.
    role : Role
        Its role.
    namespaces : tuple of str
        Globs of the namespaces it may use; empty for all. A glob with a leading exclamation mark excludes.
    digest : str
        SHA-256 of its secret, in hex.
    created_at : datetime
        When it was created.
    expires_at : datetime, optional
        When it expires.
    """

    id: str
    name: str
    role: Role
    namespaces: tuple[str, ...] = ()
    digest: str
    created_at: datetime
    expires_at: datetime | None = None

    def may_see(self, namespace: str) -> bool:
        """Whether the key may use a namespace."""
        if not self.namespaces:
            return True
        left_out = [glob[1:] for glob in self.namespaces if glob.startswith("!")]
        taken = [glob for glob in self.namespaces if not glob.startswith("!")]
        if any(fnmatchcase(namespace, glob) for glob in left_out):
            return False
        return not taken or any(fnmatchcase(namespace, glob) for glob in taken)

    def covers(self, namespaces: Sequence[str]) -> bool:
        """Whether every namespace that some globs take is certainly one that the key may use."""
        if not self.namespaces:
            return True
        is_excluded = {glob for glob in self.namespaces if glob.startswith("!")} <= {*namespaces}
        taken = [glob for glob in namespaces if not glob.startswith("!")] or ["*"]
        own = [glob for glob in self.namespaces if not glob.startswith("!")] or ["*"]
        return all(
            self.may_see(glob)
            if _is_plain(glob)
            else is_excluded and any(_is_within(glob, one) for one in own)
            for glob in taken
        )

    @property
    def may_write(self) -> bool:
        """Whether it may write."""
        return self.role is not Role.READER

    @property
    def is_admin(self) -> bool:
        """Whether it may do everything."""
        return self.role is Role.ADMIN

    def is_expired(self, now: datetime) -> bool:
        """Whether it has expired."""
        return self.expires_at is not None and now >= self.expires_at

    def proves(self, secret: str) -> bool:
        """Whether a secret is the key's. Takes constant time."""
        return hmac.compare_digest(_digest(secret), self.digest)


ANYBODY = Key(
    id="anybody", name="anybody", role=Role.ADMIN, digest="", created_at=datetime(2020, 1, 1, tzinfo=UTC)
)
"""The caller if no keys are needed."""


def new_key(
    name: str,
    role: str,
    namespaces: Sequence[str] = (),
    expires: timedelta | None = None,
    id: str | None = None,
) -> tuple[Key, str]:
    """Return a new key and its text, which is not shown again.

    Raises
    ------
    OptionError
        If the name, the role, a glob or the expiry is not valid.

    Examples
    --------
    >>> key, text = new_key("ci", "reader", ["docs-*"])
    >>> key.may_see("docs-1"), key.may_see("other"), key.proves(split(text)[1])
    (True, False, True)
    """
    if not isinstance(name, str) or not 1 <= len(name) <= 128 or not name.isprintable():
        raise OptionError("a key has a name of 1 to 128 characters", where="name")
    if role not in Role.__members__.values():
        raise OptionError(f"a key is for {', '.join(Role)}, not {role!r:.40}", where="role")
    for glob in namespaces:
        if not isinstance(glob, str) or not _GLOB.match(glob):
            raise OptionError(f"{glob!r:.80} takes no namespace", where="namespaces")
    if expires is not None and expires <= timedelta():
        raise OptionError("a key is good for some time", where="expires")
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    now = datetime.now(UTC)
    key = Key(
        id=id or secrets.token_hex(8),
        name=name,
        role=Role(role),
        namespaces=tuple(namespaces),
        digest=_digest(secret),
        created_at=now,
        expires_at=None if expires is None else now + expires,
    )
    return key, f"weir_{key.id}_{secret}"


def _is_plain(glob: str) -> bool:
    """Whether a glob takes one namespace, of its own name."""
    return not any(sign in glob for sign in "*?[")


def _is_within(glob: str, wider: str) -> bool:
    """Whether a glob is the same as another one, or begins with what the other one's ``*`` follows."""
    stem = wider.removesuffix("*")
    return glob == wider or (stem != wider and _is_plain(stem) and glob.startswith(stem))


def split(text: str) -> tuple[str, str] | None:
    """Return id and secret of a key's text; None if it is not a key."""
    found = _KEY.match(text)
    return None if found is None else (found[1], found[2])


def _digest(secret: str) -> str:
    # Of 256 random bits no dictionary helps to find the secret: a slow hash would protect nothing.
    return hashlib.sha256(b"weir key 1 " + secret.encode()).hexdigest()


def encode(key: Key) -> bytes:
    """Return a key as stored."""
    return checked_json.encode(
        {
            "format": _FORMAT,
            "id": key.id,
            "name": key.name,
            "role": key.role,
            "namespaces": list(key.namespaces),
            "digest": key.digest,
            "created_at": key.created_at.isoformat(),
            "expires_at": None if key.expires_at is None else key.expires_at.isoformat(),
            "write_id": secrets.token_hex(8),
        }
    )


def decode(data: bytes, where: str) -> Key:
    """Return the key that is stored.

    Raises
    ------
    CorruptionError
        If it cannot be read.
    """
    try:
        stored = checked_json.decode(data, where=where, unchecked_format=_UNCHECKED_FORMAT)
        expires = stored["expires_at"]
        if stored["format"] not in (_FORMAT, _UNCHECKED_FORMAT):
            raise ValueError(f"it is of format {stored['format']}")
        return Key(
            id=stored["id"],
            name=stored["name"],
            role=Role(stored["role"]),
            namespaces=tuple(stored["namespaces"]),
            digest=stored["digest"],
            created_at=datetime.fromisoformat(stored["created_at"]),
            expires_at=None if expires is None else datetime.fromisoformat(expires),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptionError(f"a key cannot be read: {error}", where=where) from error
