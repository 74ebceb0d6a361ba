"""Reading and committing shard manifests (Lance MemWAL spec, "Shard Manifest Versioning").

Manifests are versioned from 1 and immutable; an update is a put-if-absent at the next version, so of
two processes that compete one wins and the other loads what the winner wrote.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from weir.errors import ConflictError, CorruptionError, ObjectExistsError, ObjectNotFoundError, WeirError
from weir.format import layout, shard_manifest
from weir.format.shard_manifest import ShardManifest
from weir.logs import get_logger
from weir.storage.interface import ObjectStore

__all__ = ["commit_manifest", "list_shards", "read_latest_manifest", "update_manifest"]

_log = get_logger(__name__)
_MAX_COMMIT_ATTEMPTS = 64


def list_shards(store: ObjectStore) -> tuple[UUID, ...]:
    """Return the ids of all shards that have a directory, in ascending order. One round trip."""
    found = []
    for name in store.list_directories(layout.MEM_WAL):
        try:
            found.append(UUID(name))
        except ValueError:
            continue
    return tuple(sorted(found))


def _read_version(store: ObjectStore, shard_id: UUID, version: int) -> ShardManifest | None:
    path = layout.manifest_path(shard_id, version)
    try:
        data = store.get(path)
    except ObjectNotFoundError:
        return None
    manifest = shard_manifest.decode(data, where=f"{store.uri}/{path}")
    if manifest.version != version or manifest.shard_id != shard_id:
        raise CorruptionError(
            f"shard manifest says it is version {manifest.version} of shard {manifest.shard_id}",
            where=f"{store.uri}/{path}",
            hint="The file was moved or overwritten; restore it from a backup",
        )
    return manifest


def _read_hint(store: ObjectStore, shard_id: UUID) -> int:
    try:
        hint = json.loads(bytes(store.get(layout.version_hint_path(shard_id))))
    except (ObjectNotFoundError, ValueError):
        return 1
    version = hint.get("version") if isinstance(hint, dict) else None
    return version if isinstance(version, int) and version > 0 else 1


def read_latest_manifest(
    store: ObjectStore, shard_id: UUID, *, known: ShardManifest | None = None
) -> ShardManifest | None:
    """Return the newest manifest of a shard, or None if the shard has none.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    shard_id : UUID
        The shard.
    known : ShardManifest, optional
        A version read earlier: only later ones are looked for, which costs one round trip when
        there is none. Without it: the version hint, that version, and one probe beyond.

    Raises
    ------
    CorruptionError
        If a manifest cannot be decoded or is not the one its name says.
    """
    latest = known
    if latest is None:
        hint = _read_hint(store, shard_id)
        latest = _read_version(store, shard_id, hint)
        if latest is None:
            # The hint is best effort and old versions may be collected: the listing is the truth.
            latest = _read_listed(store, shard_id)
        if latest is None:
            return None
    while True:
        newer = _read_version(store, shard_id, latest.version + 1)
        if newer is None:
            return latest
        latest = newer


def _read_listed(store: ObjectStore, shard_id: UUID) -> ShardManifest | None:
    versions = []
    for entry in store.list(layout.manifest_directory(shard_id)):
        name = entry.path.rsplit("/", 1)[-1]
        if name.endswith(".binpb"):
            try:
                versions.append(layout.parse_reversed_name(name.removesuffix(".binpb")))
            except ValueError:
                continue
    for version in sorted(versions, reverse=True):
        manifest = _read_version(store, shard_id, version)
        if manifest is not None:
            return manifest
    return None


def commit_manifest(store: ObjectStore, manifest: ShardManifest) -> ShardManifest | None:
    """Publish ``manifest`` as the version it carries.

    A fresh write id is stamped into it, by which a commit whose answer was lost is recognised as our
    own (invariant I4).

    Returns
    -------
    ShardManifest or None
        The manifest as published, or None if another process took the version.
    """
    stamped = replace(manifest, write_id=secrets.token_bytes(16))
    path = layout.manifest_path(manifest.shard_id, manifest.version)
    try:
        store.put_if_absent(path, shard_manifest.encode(stamped))
    except ObjectExistsError:
        winner = _read_version(store, manifest.shard_id, manifest.version)
        if winner is None or winner.write_id != stamped.write_id:
            return None
    try:
        hint = json.dumps({"version": manifest.version}).encode()
        store.put(layout.version_hint_path(manifest.shard_id), hint)
    except WeirError as error:
        # Spec: failure is acceptable, readers probe onwards from any older hint.
        _log.warning(
            "shard.version_hint_not_written",
            shard=str(manifest.shard_id),
            version=manifest.version,
            error=str(error),
        )
    return stamped


def update_manifest(
    store: ObjectStore, shard_id: UUID, change: Callable[[ShardManifest], ShardManifest]
) -> ShardManifest:
    """Apply ``change`` to the newest manifest and publish the result as the next version.

    Parameters
    ----------
    change : callable
        Maps the newest manifest to what should follow it (the version is set here). It is called
        again after a lost race, and raises to give up: whatever it raises passes through.

    Raises
    ------
    ObjectNotFoundError
        If the shard has no manifest.
    ConflictError
        If other processes took every version tried.
    """
    known: ShardManifest | None = None
    for _ in range(_MAX_COMMIT_ATTEMPTS):
        latest = read_latest_manifest(store, shard_id, known=known)
        if latest is None:
            raise ObjectNotFoundError(
                "the shard has no manifest", where=f"{store.uri}/{layout.manifest_directory(shard_id)}"
            )
        published = commit_manifest(store, replace(change(latest), version=latest.version + 1))
        if published is not None:
            return published
        known = latest
    raise ConflictError(
        f"the manifest of shard {shard_id} kept changing during {_MAX_COMMIT_ATTEMPTS} attempts",
        where=store.uri,
        hint="Look for several processes that claim the same shard in turns",
    )
