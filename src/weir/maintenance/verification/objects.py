"""Reading many objects, and classifying the objects of a shard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from uuid import UUID

from weir.errors import InputError, ObjectNotFoundError
from weir.format import layout
from weir.storage.interface import Bytes, ObjectStore

__all__ = ["ShardObjects", "file_of", "get_or_none", "read_many"]

_MAX_PARALLEL_READS = 16
_READ_AHEAD = 64


def get_or_none(store: ObjectStore, path: str) -> Bytes | None:
    """Return an object, or None if it does not exist."""
    try:
        return store.get(path)
    except ObjectNotFoundError:
        return None


def file_of(store: ObjectStore, path: str) -> str:
    """Return the path of what holds an object: of one that was swapped on a local disk that of its file."""
    return store.location_of(path).removeprefix(f"{store.uri}/")


def read_many(store: ObjectStore, paths: Iterable[str]) -> Iterator[tuple[str, Bytes | None]]:
    """Yield objects in order, None for those that do not exist; one round trip each, several at once."""
    if store.is_local:
        yield from ((path, get_or_none(store, path)) for path in paths)
        return
    with ThreadPoolExecutor(_MAX_PARALLEL_READS, thread_name_prefix="weir-verify") as pool:
        left = iter(paths)
        while some := tuple(islice(left, _READ_AHEAD)):
            yield from zip(some, pool.map(lambda path: get_or_none(store, path), some), strict=True)


@dataclass(frozen=True, slots=True)
class ShardObjects:
    """The objects of a shard, by what their names say.

    Parameters
    ----------
    manifests : dict of int to str
        Paths of shard manifests, by version.
    log : dict of int to list of str
        Paths of log entries, by position; one each, unless something is wrong.
    directories : dict of str to int
        Directories of generations, and the numbers in their names. Staged ones have none, and are left out.
    unknown : list of str
        Paths that the format does not know.
    single : set of str
        The version hint and the lease, as far as they exist.
    """

    manifests: dict[int, str] = field(default_factory=dict)
    log: dict[int, list[str]] = field(default_factory=dict)
    directories: dict[str, int] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    single: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, paths: Sequence[str], shard_id: UUID) -> ShardObjects:
        """Sort the paths that a listing of the shard's directory returned."""
        objects = cls()
        prefix = f"{layout.shard_directory(shard_id)}/"
        known = {layout.version_hint_path(shard_id), layout.lease_path(shard_id)}
        for path in sorted(set(paths)):
            if path in known:
                objects.single.add(path)
                continue
            first, _, rest = path.removeprefix(prefix).partition("/")
            try:
                if first == "manifest":
                    objects.manifests[layout.parse_manifest_name(rest)] = path
                elif first == "wal":
                    objects.log.setdefault(layout.parse_wal_name(rest), []).append(path)
                elif rest and layout.is_staged_name(first):
                    continue
                elif rest:
                    objects.directories[first] = layout.parse_generation_name(first)
                else:
                    objects.unknown.append(path)
            except InputError:
                objects.unknown.append(path)
        return objects
