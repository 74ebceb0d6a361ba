"""Committing a change of the first MemWAL index: a version of the table, by compare-and-swap."""

from __future__ import annotations

from collections.abc import Callable

from weir.base.dataset import open_dataset
from weir.base.details_commit import wait_for_turn
from weir.base.manifest import TableManifest, read_manifest
from weir.base.publish import publish_first_details
from weir.errors import ConflictError, FencedError
from weir.first_index.view import regions_of
from weir.format.first_index_details import FirstIndexDetails
from weir.storage.interface import ObjectStore

__all__ = ["MAX_ATTEMPTS", "commit_regions", "newest_manifest", "regions_to_change", "too_many_races"]

MAX_ATTEMPTS = 64
"""Races to lose before giving up."""


def newest_manifest(store: ObjectStore) -> TableManifest:
    """Return the manifest of a table's newest version."""
    return read_manifest(store, open_dataset(store).version)


def commit_regions(
    store: ObjectStore, change: Callable[[FirstIndexDetails, int], FirstIndexDetails]
) -> tuple[int, FirstIndexDetails]:
    """Publish the next version of a table with its regions changed, and return it with its details.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    change : callable
        Maps the newest details, and the version that is made of them, to what follows. It is called again
        after a lost race, and raises to give up: nothing is changed then.

    Raises
    ------
    FencedError
        The table has been upgraded: its regions are gone.
    ConflictError
        Others committed during every attempt.
    """
    for attempt in range(MAX_ATTEMPTS):
        wait_for_turn(attempt)
        manifest = newest_manifest(store)
        changed = change(regions_to_change(store, manifest), manifest.version + 1)
        if publish_first_details(store, manifest, changed) is not None:
            return manifest.version + 1, changed
    raise too_many_races(store)


def regions_to_change(store: ObjectStore, manifest: TableManifest) -> FirstIndexDetails:
    """Return what a version says of regions, for who is about to change it.

    Raises
    ------
    FencedError
        The table has been upgraded: its regions are gone.
    """
    details = regions_of(manifest)
    if details is None:
        raise FencedError(
            "the table no longer has regions: it was upgraded",
            where=store.uri,
            hint="Open it with weir.open and write to it as to any table",
        )
    return details


def too_many_races(store: ObjectStore) -> ConflictError:
    """Return the error for who has lost every race."""
    return ConflictError(
        f"the table changed during each of {MAX_ATTEMPTS} attempts to change its regions",
        where=store.uri,
        hint="Write to it from fewer processes at a time",
    )
