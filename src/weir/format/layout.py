"""The location of every object of a shard, relative to the table root.

::

    _mem_wal/{shard_id}/manifest/{reversed version}.binpb
    _mem_wal/{shard_id}/manifest/version_hint.json
    _mem_wal/{shard_id}/lease.json
    _mem_wal/{shard_id}/wal/{reversed position}.arrow
    _mem_wal/{shard_id}/{8 hex digits}_gen_{generation}/            a Lance dataset
    _mem_wal/{shard_id}/{8 hex digits}_gen_{generation}/bloom_filter.bin
    _mem_wal/{shard_id}/{8 hex digits}_gen_{generation}/_pk_index/
    _mem_wal/{shard_id}/staged_{32 hex digits}/                     a generation that got its number later

Numbers are written as 64 binary digits, lowest bit first, so that consecutive numbers spread over
the key space of an object store. Lance MemWAL spec, sections "WAL Storage Layout", "Flushed
MemTable Storage Layout" and "Shard Manifest Storage Layout".

Names that come from stored bytes pass through :func:`check_name` before they become part of a path.
Everything here raises :class:`~weir.errors.InputError` (a ``ValueError``) for a number or name that
cannot be; who read it from storage turns that into a :class:`~weir.errors.CorruptionError`.
"""

from __future__ import annotations

import re
from uuid import UUID

from weir.errors import InputError

__all__ = [
    "BLOOM_FILTER",
    "CATALOG",
    "MEM_WAL",
    "PAGE_DATA",
    "PAGE_LOOKUP",
    "PK_INDEX",
    "WAL_SUFFIXES",
    "bloom_filter_path",
    "check_name",
    "generation_name",
    "generation_path",
    "is_staged_name",
    "lease_path",
    "manifest_directory",
    "manifest_path",
    "page_data_path",
    "page_lookup_path",
    "parse_generation_name",
    "parse_manifest_name",
    "parse_reversed_name",
    "parse_wal_name",
    "reversed_name",
    "shard_directory",
    "staged_name",
    "version_hint_path",
    "wal_directory",
    "wal_path",
]

MEM_WAL = "_mem_wal"
"""Directory below the table root that holds all shards."""

WAL_SUFFIXES = (".arrow", ".lance")
"""Suffixes of WAL entries: the one Weir and the library write, and the one of the spec's text."""

CATALOG = "catalog.json"
"""Name of the catalog inside a generation's directory. Weir's own."""

BLOOM_FILTER = "bloom_filter.bin"
"""Name of the primary-key bloom filter inside a generation."""

PK_INDEX = "_pk_index"
"""Name of the primary-key index directory inside a generation."""

PAGE_DATA = "page_data.lance"
"""Name of the primary-key index file that holds every key with its row."""

PAGE_LOOKUP = "page_lookup.lance"
"""Name of the primary-key index file that holds the key range of every page."""

_MANIFEST_SUFFIX = ".binpb"
_REVERSED = re.compile(r"[01]{64}", re.ASCII)
_RANDOM_HEX = re.compile(r"[0-9a-f]{8}", re.ASCII)
_GENERATION = re.compile(r"[0-9a-fA-F]{8}_gen_([0-9]{1,20})", re.ASCII)
_STAGED = re.compile(r"staged_[0-9a-f]{32}", re.ASCII)
# The last three mean something in a URI, which is what Lance takes: it reads `%2e%2e` as `..`.
_FORBIDDEN = re.compile(r"[/\\\x00-\x1f\x7f%?#]")


def reversed_name(number: int) -> str:
    """Return the 64 bits of ``number`` as text, lowest bit first.

    Parameters
    ----------
    number : int
        A WAL position or manifest version, 0 <= number < 2**64.

    Examples
    --------
    >>> reversed_name(5)[:8]
    '10100000'
    """
    if not 0 <= number < 1 << 64:
        raise InputError(f"{number} does not fit in 64 unsigned bits")
    return format(number, "064b")[::-1]


def parse_reversed_name(text: str) -> int:
    """Return the number that :func:`reversed_name` wrote as ``text``.

    Raises
    ------
    InputError
        ``text`` is not 64 characters of ``0`` and ``1``.

    Examples
    --------
    >>> parse_reversed_name("101" + "0" * 61)
    5
    """
    if _REVERSED.fullmatch(text) is None:
        raise InputError(f"{text[:80]!r} is not a bit-reversed number: 64 characters 0 or 1 are expected")
    return int(text[::-1], 2)


def check_name(name: str) -> str:
    """Return ``name`` if it is a plain name for one part of a path.

    Raises
    ------
    InputError
        The name is empty, ``.`` or ``..``, longer than 255 characters, or holds a separator, a control
        character, or one with a meaning in a URI, so that it could lead out of its directory.
    """
    if not name or name in (".", "..") or len(name) > 255 or _FORBIDDEN.search(name):
        raise InputError(f"{name[:80]!r} is not a plain file name")
    return name


def shard_directory(shard_id: UUID) -> str:
    """Return the directory of a shard."""
    return f"{MEM_WAL}/{shard_id}"


def wal_directory(shard_id: UUID) -> str:
    """Return the directory of a shard's WAL entries."""
    return f"{MEM_WAL}/{shard_id}/wal"


def wal_path(shard_id: UUID, position: int, suffix: str = ".arrow") -> str:
    """Return the path of the WAL entry at ``position``.

    Parameters
    ----------
    shard_id : UUID
        The shard.
    position : int
        Position in the WAL; Weir and the library count from 1.
    suffix : str, default ".arrow"
        One of :data:`WAL_SUFFIXES`.
    """
    if suffix not in WAL_SUFFIXES:
        raise InputError(f"a WAL entry ends in one of {', '.join(WAL_SUFFIXES)}, not in {suffix!r}")
    return f"{MEM_WAL}/{shard_id}/wal/{reversed_name(position)}{suffix}"


def parse_wal_name(name: str) -> int:
    """Return the position of the WAL entry whose file is called ``name`` (no directories).

    Raises
    ------
    InputError
        The name is not that of a WAL entry.
    """
    for suffix in WAL_SUFFIXES:
        if name.endswith(suffix):
            return parse_reversed_name(name.removesuffix(suffix))
    raise InputError(f"{name[:80]!r} is not the name of a WAL entry")


def manifest_directory(shard_id: UUID) -> str:
    """Return the directory of a shard's manifests."""
    return f"{MEM_WAL}/{shard_id}/manifest"


def manifest_path(shard_id: UUID, version: int) -> str:
    """Return the path of one version of a shard's manifest; versions count from 1."""
    return f"{MEM_WAL}/{shard_id}/manifest/{reversed_name(version)}{_MANIFEST_SUFFIX}"


def parse_manifest_name(name: str) -> int:
    """Return the version of the shard manifest whose file is called ``name`` (no directories).

    Raises
    ------
    InputError
        The name is not that of a shard manifest.
    """
    if not name.endswith(_MANIFEST_SUFFIX):
        raise InputError(f"{name[:80]!r} is not the name of a shard manifest")
    return parse_reversed_name(name.removesuffix(_MANIFEST_SUFFIX))


def version_hint_path(shard_id: UUID) -> str:
    """Return the path of the hint at the latest version of a shard's manifest."""
    return f"{MEM_WAL}/{shard_id}/manifest/version_hint.json"


def lease_path(shard_id: UUID) -> str:
    """Return the path of the lease of a shard's writer. Weir's own; the spec knows no leases."""
    return f"{MEM_WAL}/{shard_id}/lease.json"


def generation_name(random_hex: str, generation: int) -> str:
    """Return the directory name of a flushed generation.

    Parameters
    ----------
    random_hex : str
        8 lower-case hex digits, random for each attempt, so that a failed flush never blocks its retry.
    generation : int
        The generation, 1 or more.

    Examples
    --------
    >>> generation_name("a1b2c3d4", 7)
    'a1b2c3d4_gen_7'
    """
    if _RANDOM_HEX.fullmatch(random_hex) is None:
        raise InputError(f"{random_hex!r} is not 8 lower-case hex digits")
    if not 1 <= generation < 1 << 64:
        raise InputError(f"{generation} is not a generation: they count from 1 and fit in 64 bits")
    return f"{random_hex}_gen_{generation}"


def parse_generation_name(name: str) -> int:
    """Return the generation in a name that :func:`generation_name` made.

    Raises
    ------
    InputError
        The name is not that of a generation.

    Examples
    --------
    >>> parse_generation_name("a1b2c3d4_gen_7")
    7
    """
    match = _GENERATION.fullmatch(name)
    generation = int(match.group(1)) if match is not None else 0
    if not 1 <= generation < 1 << 64:
        raise InputError(f"{name[:80]!r} is not the name of a generation")
    return generation


def staged_name(random_hex: str) -> str:
    """Return the directory name of a generation that is written before it has a number.

    Parameters
    ----------
    random_hex : str
        32 lower-case hex digits, random for each.

    Examples
    --------
    >>> staged_name("0" * 32)
    'staged_00000000000000000000000000000000'
    """
    name = f"staged_{random_hex}"
    if not is_staged_name(name):
        raise InputError(f"{random_hex!r} is not 32 lower-case hex digits")
    return name


def is_staged_name(name: str) -> bool:
    """Whether :func:`staged_name` may have made a name."""
    return _STAGED.fullmatch(name) is not None


def generation_path(shard_id: UUID, name: str) -> str:
    """Return the directory of the flushed generation called ``name``.

    Raises
    ------
    InputError
        ``name`` is not a plain name (:func:`check_name`).
    """
    return f"{MEM_WAL}/{shard_id}/{check_name(name)}"


def bloom_filter_path(shard_id: UUID, name: str) -> str:
    """Return the path of the bloom filter of the generation called ``name``."""
    return f"{generation_path(shard_id, name)}/{BLOOM_FILTER}"


def page_data_path(shard_id: UUID, name: str) -> str:
    """Return the path of the keys of the primary-key index of the generation called ``name``."""
    return f"{generation_path(shard_id, name)}/{PK_INDEX}/{PAGE_DATA}"


def page_lookup_path(shard_id: UUID, name: str) -> str:
    """Return the path of the page ranges of the primary-key index of the generation called ``name``."""
    return f"{generation_path(shard_id, name)}/{PK_INDEX}/{PAGE_LOOKUP}"
