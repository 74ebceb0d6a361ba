"""Version numbers that were set aside after a power loss, and are never reused.

An unreadable version is moved aside when one above it is readable, so its number becomes free and is below
the newest. A commit planned earlier under that number would succeed but never be read. The moved manifest
records this, and exists before the number becomes free.
"""

from __future__ import annotations

from weir.base.manifest import VERSIONS, manifest_version
from weir.storage.interface import ObjectStore

__all__ = ["SET_ASIDE", "is_spent", "set_aside_path"]

SET_ASIDE = "_weir/torn_versions"
"""Directory of the manifests of versions that were set aside."""


def set_aside_path(version: int) -> str:
    """Return the path of the manifest of a version that was set aside.

    Examples
    --------
    >>> set_aside_path(7)
    '_weir/torn_versions/7.manifest'
    """
    return f"{SET_ASIDE}/{version}.manifest"


def is_spent(store: ObjectStore, version: int) -> bool:
    """Whether a version of that number was set aside; to be asked when one has been published under it.

    No round trip: only local tables lose anything with the power. What a former table has left at the place
    spends nothing: there has to be a newer version.
    """
    if not store.is_local or store.head(set_aside_path(version)) is None:
        return False
    listed = (manifest_version(entry.path) for entry in store.list(VERSIONS))
    return any(one is not None and one > version for one in listed)
