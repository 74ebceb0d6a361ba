"""Verifying that every version of the base table has all its files, with their full length.

What is gone, empty or short is found by listing, without reading the files. Deletion files, of whose length
nothing is recorded, are read.
"""

from __future__ import annotations

from weir.base.manifest import VERSIONS, manifest_version
from weir.base.table import BaseTable
from weir.errors import CorruptionError, ObjectNotFoundError
from weir.format.deletion_file import is_whole_deletion_file
from weir.format.table_manifest import VersionFiles, decode_files
from weir.maintenance.verification.finding import Findings
from weir.storage.interface import ObjectMeta, ObjectStore

__all__ = ["check_versions"]

_DIRECTORIES = ("data", "_deletions", "_indices")


def check_versions(base: BaseTable, findings: Findings) -> None:
    """Find every file of a version that is gone, empty or short, and manifests that cannot be read.

    An error where the newest version is concerned, since what is read is older; a warning where an older one
    is, which only time travel reads.
    """
    store = base.store
    decoded: dict[int, VersionFiles] = {}
    for version, path in sorted(_manifests(store).items(), reverse=True):
        try:
            decoded[version] = decode_files(store.get(path), where=path)
        except CorruptionError as error:
            _note(findings, version, base.version, path, error.message)
        except ObjectNotFoundError:
            continue  # removed meanwhile
    # After the manifests: what they refer to was there before them.
    sizes = {entry.path: entry for name in _DIRECTORIES for entry in store.list(name)}
    there = _manifests(store)
    # Those of the newest version's indexes are checked with what is in them.
    newest = decoded.get(base.version)
    seen = set() if newest is None else {file.path for file in newest.indexes}
    for version, files in decoded.items():
        if version not in there:
            continue  # removed meanwhile, with its files
        for file in files.needed:
            if file.path not in seen:
                seen.add(file.path)
                torn = _tear(store, sizes.get(file.path), file.path, file.size)
                if torn is not None:
                    _note(findings, version, base.version, file.path, torn)


def _manifests(store: ObjectStore) -> dict[int, str]:
    listed = ((manifest_version(entry.path), entry.path) for entry in store.list(VERSIONS))
    return {version: path for version, path in listed if version is not None}


def _tear(store: ObjectStore, entry: ObjectMeta | None, path: str, size: int | None) -> str | None:
    if entry is None:
        # Of an index without a list of its files nobody knows whether it has any.
        return None if size is None and path.startswith("_indices/") else "the file is gone"
    if size is not None and entry.size != size:
        return f"the file has {entry.size} bytes where {size} were written"
    if not entry.size:
        return "the file is empty"
    if path.startswith("_deletions/"):
        try:
            whole = is_whole_deletion_file(store.get(path), path)
        except ObjectNotFoundError:
            return None
        return None if whole else "the deletion file is not whole"
    return None


def _note(findings: Findings, version: int, newest: int, path: str, message: str) -> None:
    if version >= newest:
        findings.error("base.torn", path, f"version {version}: {message}")
    else:
        findings.warning("base.torn_history", path, f"version {version}: {message}")
