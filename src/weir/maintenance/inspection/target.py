"""Resolving the object to inspect: a path below a table, or a short name for it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import UUID

from weir.errors import OptionError
from weir.format import feed_consumer, layout, snapshot_pin, tag
from weir.format.garbage_marks import MARKS
from weir.log.manifest_store import list_shards, read_latest_manifest
from weir.storage.interface import ObjectStore
from weir.storage.paths import check_prefix

__all__ = ["Target", "resolve", "split_location"]

_INSIDE = re.compile(r"(?P<root>.*?)/(?P<path>(?:_mem_wal|_weir|_indices|_versions)(?:/.*)?)")
_OBJECT_SUFFIXES = (".binpb", ".arrow", ".bin", ".json")
_SHORT_NAMES = (
    "details, snapshots, marks, pin/ID, tag/NAME, consumer/NAME, or SHARD, SHARD/manifest, "
    "SHARD/manifest/VERSION, SHARD/wal/POSITION, SHARD/generation/NUMBER, SHARD/lease, where SHARD is the "
    "beginning of an id; or a path below the table"
)


@dataclass(frozen=True, slots=True)
class Target:
    """What to inspect.

    Parameters
    ----------
    kind : str
        ``"table"``, ``"details"``, ``"snapshots"``, ``"shard"``, ``"generation"`` or ``"object"``.
    path : str
        Its path below the table; empty for the table.
    """

    kind: str
    path: str


def split_location(location: str, what: str | None) -> tuple[str, str | None]:
    """Return the location of a table, and what in it is meant.

    A location that leads into a table is taken apart; that of a single file is split into its directory
    and its name.

    Examples
    --------
    >>> split_location("s3://b/t/_weir/garbage/marks.json", None)
    ('s3://b/t', '_weir/garbage/marks.json')
    >>> split_location("people", "details")
    ('people', 'details')
    >>> split_location("saved/entry.arrow", None)
    ('saved', 'entry.arrow')
    """
    location = location.rstrip("/") or location
    inside = _INSIDE.fullmatch(location)
    if inside is not None:
        path = inside["path"] if what is None else f"{inside['path']}/{what}"
        return inside["root"] or "/", path
    if what is None and location.endswith(_OBJECT_SUFFIXES):
        root, _, name = location.rpartition("/")
        return root or ("/" if location.startswith("/") else "."), name
    return location, what


def resolve(store: ObjectStore, what: str | None) -> Target:
    """Return what a short name or a path means.

    Raises
    ------
    OptionError
        If it means nothing, or more than one shard.
    UriError
        If a path leads out of the table.
    """
    if not what:
        return Target("table", "")
    what = check_prefix(what)
    first, _, rest = what.partition("/")
    if what == "details":
        return Target("details", "")
    if what == "snapshots":
        return Target("snapshots", "")
    if what == "marks":
        return Target("object", MARKS)
    if first == "pin" and rest:
        return Target("object", snapshot_pin.pin_path(rest))
    if first == "tag" and rest:
        return Target("object", tag.tag_path(rest))
    if first == "consumer" and rest:
        return Target("object", feed_consumer.consumer_path(rest))
    if first in ("_mem_wal", "_weir", "_indices", "_versions") or what.endswith(_OBJECT_SUFFIXES):
        return _path(what)
    return _of_shard(store, _shard(store, first, what), rest, what)


def _path(path: str) -> Target:
    parts = path.split("/")
    if parts[0] == layout.MEM_WAL and len(parts) == 2:
        return Target("shard", path)
    if parts[0] == layout.MEM_WAL and len(parts) == 3 and "_gen_" in parts[2]:
        return Target("generation", path)
    if parts[0] == layout.MEM_WAL and layout.PK_INDEX in parts and "_gen_" in parts[2]:
        return Target("generation", "/".join(parts[:3]))
    return Target("object", path)


def _shard(store: ObjectStore, prefix: str, what: str) -> UUID:
    found = [one for one in list_shards(store) if str(one).startswith(prefix.lower())]
    if len(found) == 1:
        return found[0]
    says = f"{len(found)} shards begin with it" if found else "there is no such shard or object"
    raise OptionError(
        f"{what!r} cannot be inspected: {says}", where=store.uri, hint=f"There are {_SHORT_NAMES}"
    )


def _of_shard(store: ObjectStore, shard_id: UUID, rest: str, what: str) -> Target:
    kind, _, number = rest.partition("/")
    if not kind:
        return Target("shard", layout.shard_directory(shard_id))
    if kind == "lease" and not number:
        return Target("object", layout.lease_path(shard_id))
    digits = number.isascii() and number.isdecimal() and len(number) <= 20
    if kind == "manifest" and (digits or not number):
        version = int(number) if number else _newest(store, shard_id)
        return Target("object", layout.manifest_path(shard_id, version))
    if kind == "wal" and digits:
        paths = [layout.wal_path(shard_id, int(number), suffix) for suffix in layout.WAL_SUFFIXES]
        return Target("object", next((path for path in paths if store.head(path) is not None), paths[0]))
    if kind == "generation" and digits:
        for name in store.list_directories(layout.shard_directory(shard_id)):
            if name.endswith(f"_gen_{int(number)}"):
                return Target("generation", layout.generation_path(shard_id, name))
        raise OptionError(
            f"shard {shard_id} has no generation {number}",
            where=store.uri,
            hint="Its newest manifest lists its generations",
        )
    raise OptionError(
        f"{what!r} cannot be inspected: a shard has no {rest[:60]!r}",
        where=store.uri,
        hint=f"There are {_SHORT_NAMES}",
    )


def _newest(store: ObjectStore, shard_id: UUID) -> int:
    newest = read_latest_manifest(store, shard_id)
    if newest is None:
        raise OptionError(f"shard {shard_id} has no manifest", where=store.uri)
    return newest.version
