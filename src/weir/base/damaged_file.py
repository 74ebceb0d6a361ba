"""Finding the file of a local Lance dataset that is damaged, where the library's error names none."""

from __future__ import annotations

import os

from weir.base.manifest import VERSIONS, manifest_version
from weir.errors import CorruptionError
from weir.format.deletion_file import is_whole_deletion_file
from weir.format.table_manifest import VersionFile, decode_files

__all__ = ["damaged_file"]

_MAGIC = b"LANC"


def damaged_file(uri: str) -> str:
    """Return where the first file is that is gone, short, or does not end as its kind does.

    Looks at the files of the newest version. To be asked when a read has failed: it opens all of them.

    Parameters
    ----------
    uri : str
        Location of the dataset.

    Returns
    -------
    str
        Location of the file; ``uri`` if that is not a directory, or no file shows it.
    """
    try:
        versions = {manifest_version(f"{VERSIONS}/{name}"): name for name in os.listdir(f"{uri}/{VERSIONS}")}
        newest = max(version for version in versions if version is not None)
        path = f"{uri}/{VERSIONS}/{versions[newest]}"
        with open(path, "rb") as manifest:
            files = decode_files(manifest.read(), where=path)
    except (OSError, ValueError, CorruptionError):
        return uri
    for file in files.deletions + files.data + files.indexes:
        location = f"{uri}/{file.path}"
        # Of an index without a list of its files nobody knows whether it has any.
        if "." in os.path.basename(location) and not _is_whole(location, file):
            return location
    return uri


def _is_whole(location: str, file: VersionFile) -> bool:
    try:
        with open(location, "rb") as opened:
            if file.path.startswith("_deletions/"):
                return is_whole_deletion_file(opened.read(), file.path)
            size = opened.seek(0, os.SEEK_END)
            if size < len(_MAGIC) or file.size not in (None, size):
                return False
            opened.seek(-len(_MAGIC), os.SEEK_END)
            return opened.read() == _MAGIC
    except OSError:
        return False
