"""The Lance dataset of a table: opened at a version, or the error that says why it cannot be."""

from __future__ import annotations

import os

import lance

from weir.base.library_errors import LIBRARY_ERRORS, LibraryFailure, classify, is_panic, storage_failure
from weir.base.manifest import VERSIONS, TableManifest, read_manifest
from weir.base.newest_manifest import read_first_listed
from weir.base.torn_versions import SoundVersion, newest_sound_version, what_is_torn
from weir.engine.concurrent_map import ask_both
from weir.errors import (
    CorruptionError,
    ObjectNotFoundError,
    SnapshotExpiredError,
    StorageError,
    TableNotFoundError,
    WeirError,
)
from weir.format.table_manifest import head_message
from weir.indexing.library_message import library_message
from weir.storage.interface import ObjectStore

__all__ = [
    "checked_out",
    "damaged_manifest",
    "library_options",
    "manifest_of",
    "newest_sound",
    "no_dataset",
    "open_dataset",
    "open_newest",
    "open_version",
    "primary_key_of",
]

_RETRY_TIMEOUT = "client_retry_timeout"
_RETRY_TIMEOUTS = (_RETRY_TIMEOUT, f"object_store_{_RETRY_TIMEOUT}")
_RETRY_SECONDS = "30"


def library_options(store: ObjectStore) -> dict[str, str] | None:
    """Return the storage options to hand to the library: those of the store, and how long it tries again.

    If connections are accepted but never answered, it retries six times what its client has tried for three
    minutes, each time up to half a minute. Reported errors take no longer than before: it tries those three
    times, within a second.
    """
    if store.is_local:
        return None
    options = dict(store.storage_options)
    said = {name.lower() for name in (*options, *os.environ)}
    if said.isdisjoint(_RETRY_TIMEOUTS):
        options[_RETRY_TIMEOUT] = _RETRY_SECONDS
    return options


def open_dataset(store: ObjectStore, *, version: int | None = None) -> lance.LanceDataset:
    """Open the Lance dataset at the root of a store, Weir table or not.

    Raises
    ------
    TableNotFoundError
        There is none.
    SnapshotExpiredError
        There is one, without the version asked for.
    CorruptionError
        The library cannot read its manifest, nor that of an older version that could replace a torn one.
    """
    try:
        return open_version(store, version)
    except (TableNotFoundError, CorruptionError, StorageError) as error:
        if version is not None:
            raise
        return open_version(store, newest_sound(store, error).manifest.version)


def open_version(
    store: ObjectStore, version: int | None, manifest: TableManifest | None = None
) -> lance.LanceDataset:
    """Open a version, or the newest; a manifest that is known is not read again.

    Raises
    ------
    TableNotFoundError, SnapshotExpiredError
        There is none.
    CorruptionError
        The library cannot read its manifest.
    StorageError
        The store failed.
    """
    known = None if manifest is None else head_message(manifest.data, where=manifest.where)
    try:
        return lance.LanceDataset(
            store.uri, version, storage_options=library_options(store), serialized_manifest=known
        )
    except LIBRARY_ERRORS as error:
        if classify(error) is LibraryFailure.ABSENT:
            if version is None:
                raise no_dataset(store) from error
            open_version(store, None)
            raise _no_version(store, version) from error
        if classify(error) is LibraryFailure.DAMAGED:
            raise damaged_manifest(store, error) from error
        raise storage_failure(error, "opening the table", where=store.uri) from error
    except BaseException as error:
        if not is_panic(error):
            raise
        raise damaged_manifest(store, error) from error


def open_newest(store: ObjectStore) -> tuple[lance.LanceDataset, TableManifest]:
    """Open the newest version, and read its manifest: at once where each is two round trips."""
    if store.is_local:
        dataset = open_version(store, None)
        return dataset, manifest_of(store, dataset)
    dataset, manifest = ask_both(
        lambda: open_version(store, None),
        lambda: read_first_listed(store),
        is_local=False,
        engine=store.engine,
    )
    if manifest is None or manifest.version != dataset.version:
        # There was a commit in between, or older versions are listed first.
        manifest = manifest_of(store, dataset)
    return dataset, manifest


def checked_out(store: ObjectStore, dataset: lance.LanceDataset, version: int) -> lance.LanceDataset:
    """Return another version of an open dataset.

    Raises
    ------
    SnapshotExpiredError
        It does not exist, or was lost in a power failure.
    CorruptionError
        The library cannot read its manifest.
    StorageError
        The store failed.
    """
    try:
        return dataset.checkout_version(version)
    except LIBRARY_ERRORS as error:
        if classify(error) is LibraryFailure.ABSENT:
            raise _no_version(store, version) from error
        if classify(error) is LibraryFailure.DAMAGED:
            raise _unreadable(store, version, error) from error
        raise storage_failure(error, f"opening version {version} of the table", where=store.uri) from error
    except BaseException as error:
        if not is_panic(error):
            raise
        raise _unreadable(store, version, error) from error


def newest_sound(store: ObjectStore, error: WeirError | None) -> SoundVersion:
    """Return the newest sound version, where the newest could not be read: below torn ones, most often.

    If nothing is torn, another process may have set the torn version aside; opening the version will show.
    """
    found = newest_sound_version(store) if store.is_local else None
    if found is not None:
        return found
    raise no_dataset(store) if error is None else error


def manifest_of(store: ObjectStore, dataset: lance.LanceDataset) -> TableManifest:
    """Return the manifest of an open version.

    Raises
    ------
    SnapshotExpiredError
        It no longer exists.
    """
    try:
        return read_manifest(store, dataset.version)
    except ObjectNotFoundError as error:
        raise SnapshotExpiredError(
            f"version {dataset.version} of the table was removed while it was being opened",
            where=store.uri,
            hint="Open the latest version",
        ) from error


def primary_key_of(dataset: lance.LanceDataset) -> tuple[str, ...]:
    """Return the primary-key columns of a Lance dataset in key order; empty if it has no key."""
    return tuple(field.name() for field in dataset.lance_schema.unenforced_primary_key())


def damaged_manifest(store: ObjectStore, error: BaseException) -> CorruptionError:
    """Return the error for a manifest that the library cannot read."""
    return CorruptionError(
        f"the library cannot read the table's manifest: {library_message(error)}",
        where=f"{store.uri}/{VERSIONS}",
        hint="Restore the newest file there from a backup, or move it away to go back one version",
    )


def _unreadable(store: ObjectStore, version: int, error: BaseException) -> WeirError:
    """Return the error that says why a version that is not the newest cannot be read."""
    try:
        manifest = read_manifest(store, version)
        reason = what_is_torn(store, manifest)
    except ObjectNotFoundError:
        return _no_version(store, version)
    if reason is None:
        return CorruptionError(
            f"the library cannot read version {version} of the table: {library_message(error)}",
            where=manifest.where,
            hint="Restore the file from a backup, or read another version",
        )
    return SnapshotExpiredError(
        f"version {version} of the table was lost in a power failure: {reason}",
        where=manifest.where,
        hint="Every acknowledged row is in the latest version; take a new snapshot of it",
    )


def no_dataset(store: ObjectStore) -> TableNotFoundError:
    """Return the error for a place without a table."""
    if not store.is_local:
        # The library believes any answer with an empty listing.
        store.list_first(VERSIONS)
    return TableNotFoundError(
        "there is no table",
        where=store.uri,
        hint="Create it with weir.create, or check the location and the storage options",
    )


def _no_version(store: ObjectStore, version: int) -> SnapshotExpiredError:
    return SnapshotExpiredError(
        f"the table has no version {version}",
        where=store.uri,
        hint="It was cleaned up or never existed; open the latest version",
    )
