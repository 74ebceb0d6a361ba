"""Verifying the base table's files against their checksums, as far as Weir wrote them."""

from __future__ import annotations

from dataclasses import dataclass

from weir.base.deleted_rows import damaged_deletions
from weir.base.file_checksums import damaged_base_files
from weir.base.manifest import read_manifest
from weir.base.table import BaseTable
from weir.errors import CorruptionError, ObjectNotFoundError
from weir.format.file_checksums import CHECKSUMS
from weir.format.table_manifest import decode_files
from weir.maintenance.verification.finding import Finding, Findings

__all__ = ["BaseFilesCheck", "check_base_files"]


@dataclass(frozen=True, slots=True)
class BaseFilesCheck:
    """The task of comparing the files of the base table with their checksums. Picklable.

    Parameters
    ----------
    base : BaseTable
        The base table.
    """

    base: BaseTable


def check_base_files(check: BaseFilesCheck) -> tuple[Finding, ...]:
    """Read all files of a version that have a checksum, and return which are not what was written.

    Of deletion files without one, their numbers of rows tell.
    """
    base = check.base
    findings = Findings(base.store.uri)
    try:
        manifest = read_manifest(base.store, base.version)
        files = decode_files(manifest.data, where=manifest.where)
    except (CorruptionError, ObjectNotFoundError):
        return ()  # reported where versions are checked
    damaged = damaged_base_files(base.store, {file.path for file in files.needed})
    told = {one.path for one in damaged}
    for one in damaged_deletions(base.store, manifest, again=True):
        if one.path not in told:
            findings.error("base.checksum", one.path, one.problem)
    for one in damaged:
        if one.path.startswith(f"{CHECKSUMS}/"):
            text = f"nothing tells whether the files of this commit are whole: {one.problem}"
            findings.warning("base.checksums", one.path, text)
        else:
            findings.error("base.checksum", one.path, one.problem)
    return tuple(findings.found)
