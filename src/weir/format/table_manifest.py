"""The parts of a Lance table's own manifest that Weir reads: columns, indexes, and files of the version.

The library does not hand out merge progress and index catch-up, so Weir reads the details of the
MemWAL index from the manifest file of the table version it has open. A manifest file ends in the
offset of the ``Manifest`` message (uint64), the major and minor format version (uint16 each) and
``LANC``; messages in it are preceded by their length (uint32). All numbers are little-endian. Lance
table format spec, "Manifest".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from google.protobuf.message import Message

from weir.errors import CorruptionError
from weir.format import messages
from weir.format.buffers import Bytes
from weir.format.proto import memwal_pb2

__all__ = [
    "IndexEntry",
    "VersionFile",
    "VersionFiles",
    "as_first_version",
    "assemble",
    "decode_files",
    "decode_index_section",
    "decode_restored_version",
    "decode_transaction",
    "head_message",
    "ids_in_every_fragment",
    "made_at",
    "made_by_one_transaction",
    "read_head",
    "read_sections",
    "refuse_torn_end",
    "with_index_details",
    "with_version",
]

_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_MAGIC = b"LANC"

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One index of a table version.

    Parameters
    ----------
    uuid : UUID
        Identifier of the index, or of this segment of it.
    name : str
        Name of the index.
    dataset_version : int
        Table version the index was built from.
    details_type_url : str
        Type of the details; empty if there are none.
    details : bytes
        The serialised details; for the MemWAL index see :mod:`weir.format.index_details`.
    field_ids : tuple of int, default ()
        The columns it is on.
    """

    uuid: UUID
    name: str
    dataset_version: int
    details_type_url: str
    details: bytes
    field_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class VersionFile:
    """A file that a version of a table refers to.

    Parameters
    ----------
    path : str
        Its path, relative to the table. Of an index whose files are not listed, their directory.
    size : int or None
        Its size in bytes; None where the manifest does not say.
    rows : int or None, default None
        Of a deletion file, how many rows it deletes, where the manifest says so.
    """

    path: str
    size: int | None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """The files of a version of a table, without those that are below another table.

    Parameters
    ----------
    version : int
        The version.
    data, deletions, indexes : tuple of VersionFile
        Data files, deletion files, and the files of indexes.
    transaction : VersionFile or None
        The transaction file. It is not needed to read the version. Its size is what the library wrote, unless
        the transaction was changed since.
    """

    version: int
    data: tuple[VersionFile, ...]
    deletions: tuple[VersionFile, ...]
    indexes: tuple[VersionFile, ...]
    transaction: VersionFile | None

    @property
    def needed(self) -> tuple[VersionFile, ...]:
        """Every file without which the version cannot be read."""
        return self.data + self.deletions + self.indexes


def decode_files(manifest: Bytes, *, where: str) -> VersionFiles:
    """Return the files that a table manifest refers to.

    Lance table format spec, "Fragments", "Deletion files" and "Index metadata".

    Parameters
    ----------
    manifest : bytes-like
        The whole manifest file.
    where : str
        Path of the file, for the error.

    Raises
    ------
    CorruptionError
        The bytes are not a Lance table manifest.
    """
    head, section = _decode(manifest, where)
    data = (
        VersionFile(f"data/{_text(file.path, where)}", file.file_size_bytes or None)
        for fragment in head.fragments
        for file in fragment.files
        if not file.HasField("base_id")
    )
    deletions = (
        VersionFile(
            _deletion_path(fragment.id, fragment.deletion_file),
            None,
            fragment.deletion_file.num_deleted_rows or None,
        )
        for fragment in head.fragments
        if fragment.HasField("deletion_file") and not fragment.deletion_file.HasField("base_id")
    )
    indexes: list[VersionFile] = []
    for entry in section.indices:
        if entry.HasField("base_id"):
            continue
        directory = (
            f"_indices/{messages.read_uuid(entry.uuid.uuid, what='the uuid of an index', where=where)}"
        )
        listed = [
            VersionFile(f"{directory}/{_text(file.path, where)}", file.size_bytes or None)
            for file in entry.files
        ]
        indexes.extend(listed or [VersionFile(directory, None)])
    transaction = _transaction(manifest, head, where)
    return VersionFiles(head.version, tuple(data), tuple(deletions), tuple(indexes), transaction)


def decode_transaction(manifest: Bytes, *, where: str) -> VersionFile | None:
    """Return the transaction file that a table manifest refers to; None if there is none.

    Raises
    ------
    CorruptionError
        The bytes are not a Lance table manifest.
    """
    return _transaction(manifest, read_head(manifest, where=where), where)


def _transaction(manifest: Bytes, head: memwal_pb2.TableManifest, where: str) -> VersionFile | None:
    if not head.transaction_file:
        return None
    # The manifest holds the same message, behind its length.
    size = _length_at(manifest, head.transaction_section) if head.HasField("transaction_section") else None
    return VersionFile(f"_transactions/{_text(head.transaction_file, where)}", size)


def _length_at(manifest: Bytes, offset: int) -> int | None:
    view = memoryview(manifest).cast("B")
    return int(_LENGTH.unpack_from(view, offset)[0]) if offset + _LENGTH.size <= len(view) else None


def refuse_torn_end(manifest: Bytes, *, where: str) -> None:
    """Make sure that a manifest file ends with its message: nothing is missing in the middle.

    Raises
    ------
    CorruptionError
        It does not.
    """
    view = memoryview(manifest).cast("B")
    offset = _head_offset(view, where)
    length = _length_at(manifest, offset)
    if length is None or offset + _LENGTH.size + length + _FOOTER.size != len(view):
        raise CorruptionError("the table manifest does not end with its message", where=where)


def _text(name: bytes, where: str) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise CorruptionError("a data or index file has a name that is not text", where=where) from error


def _deletion_path(fragment_id: int, file: memwal_pb2.DeletionFile) -> str:
    suffix = "bin" if file.file_type == memwal_pb2.BITMAP else "arrow"
    return f"_deletions/{fragment_id}-{file.read_version}-{file.id}.{suffix}"


def decode_index_section(manifest: Bytes, *, where: str) -> tuple[IndexEntry, ...]:
    """Return the indexes that a table manifest lists, in its order.

    Parameters
    ----------
    manifest : bytes-like
        The whole manifest file.
    where : str
        Path of the file, for the error.

    Raises
    ------
    CorruptionError
        The bytes are not a Lance table manifest.
    """
    _, section = _decode(manifest, where)
    return tuple(
        IndexEntry(
            uuid=messages.read_uuid(entry.uuid.uuid, what=f"the uuid of index {entry.name!r}", where=where),
            name=entry.name,
            dataset_version=entry.dataset_version,
            details_type_url=entry.index_details.type_url,
            details=entry.index_details.value,
            field_ids=tuple(entry.fields),
        )
        for entry in section.indices
    )


def decode_restored_version(transaction: Bytes, *, where: str) -> int | None:
    """Return the version that a transaction restores; None if it does anything else.

    Parameters
    ----------
    transaction : bytes-like
        The whole transaction file.
    where : str
        Path of the file, for the error.

    Raises
    ------
    CorruptionError
        The bytes are no transaction.
    """
    read = messages.parse(memwal_pb2.Transaction(), transaction, what="transaction", where=where)
    return read.restore.version if read.HasField("restore") else None


def _decode(manifest: Bytes, where: str) -> tuple[memwal_pb2.TableManifest, memwal_pb2.IndexSection]:
    """Return the manifest and the list of indexes in it, which is empty if there are none."""
    view = memoryview(manifest).cast("B")
    head = read_head(manifest, where=where)
    if not head.HasField("index_section"):
        return head, memwal_pb2.IndexSection()
    return head, _read(memwal_pb2.IndexSection(), view, head.index_section, "index section", where)


def read_head(manifest: Bytes, *, where: str) -> memwal_pb2.TableManifest:
    """Return the ``Manifest`` message of a manifest file.

    Raises
    ------
    CorruptionError
        The bytes are not a Lance table manifest.
    """
    view = memoryview(manifest).cast("B")
    return _read(memwal_pb2.TableManifest(), view, _head_offset(view, where), "table manifest", where)


def head_message(manifest: Bytes, *, where: str) -> bytes:
    """Return the ``Manifest`` message of a manifest file as it is stored there.

    Raises
    ------
    CorruptionError
        The bytes are not a Lance table manifest.
    """
    return messages.serialize(read_head(manifest, where=where))


def made_by_one_transaction(manifest: Bytes, message: bytes, *, where: str) -> bool:
    """Whether a manifest file and a ``Manifest`` message name the same transaction, and have one number.

    Raises
    ------
    CorruptionError
        The bytes are not a Lance table manifest, or no such message.
    """
    head = read_head(manifest, where=where)
    other = messages.parse(memwal_pb2.TableManifest(), message, what="table manifest", where=where)
    return bool(
        head.transaction_file
        and head.transaction_file == other.transaction_file
        and head.version == other.version
    )


def made_at(manifest: Bytes, *, where: str) -> int | None:
    """Return when a version was made, as who committed it says, in microseconds since 1970.

    Raises
    ------
    CorruptionError
        The bytes are not a Lance table manifest.
    """
    head = read_head(manifest, where=where)
    if not head.HasField("timestamp"):
        return None
    return head.timestamp.seconds * 1_000_000 + head.timestamp.nanos // 1000


def ids_in_every_fragment(manifest: Bytes, *, where: str) -> frozenset[int]:
    """Return the field ids that the data files of every fragment have; none where there is no fragment.

    Of a column with parts, the files have the innermost ones.

    Raises
    ------
    CorruptionError
        The bytes are not a Lance table manifest.
    """
    fragments = read_head(manifest, where=where).fragments
    have = [frozenset(number for file in one.files for number in file.fields) for one in fragments]
    return frozenset.intersection(*have) if have else frozenset()


def read_sections(
    manifest: Bytes, *, where: str
) -> tuple[memwal_pb2.IndexSection, memwal_pb2.Transaction | None]:
    """Return what is before the ``Manifest`` message of a manifest file: indexes, and the transaction if any.

    Raises
    ------
    CorruptionError
        The bytes are not a Lance table manifest, or there is something else in it.
    """
    view = memoryview(manifest).cast("B")
    head, section = _decode(manifest, where)
    transaction = None
    starts = [head.index_section] if head.HasField("index_section") else []
    if head.HasField("transaction_section"):
        starts.append(head.transaction_section)
        transaction = _read(
            memwal_pb2.Transaction(), view, head.transaction_section, "transaction section", where
        )
    at = 0
    for start in sorted(starts):
        at = start + _LENGTH.size + _LENGTH.unpack_from(view, start)[0] if start == at else -1
    if at != _head_offset(view, where):
        raise CorruptionError("the table manifest has unknown parts", where=where)
    return section, transaction


def with_version(manifest: Bytes, version: int, *, where: str) -> bytes:
    """Return a manifest file that is of another version, and otherwise the same.

    For building a version of a table in several of the library's steps, each of which counts one up.

    Parameters
    ----------
    manifest : bytes-like
        The whole manifest file.
    version : int
        The new version.
    where : str
        Path of the file, for the error.

    Raises
    ------
    CorruptionError
        The bytes are not a Lance table manifest, or there is something behind the ``Manifest`` message.
    """
    view = memoryview(manifest).cast("B")
    offset = _head_offset(view, where)
    head = _read(memwal_pb2.TableManifest(), view, offset, "table manifest", where)
    refuse_torn_end(manifest, where=where)
    head.version = version
    message = head.SerializeToString()
    return b"".join((view[:offset], _LENGTH.pack(len(message)), message, view[-_FOOTER.size :]))


def as_first_version(manifest: Bytes, version: int, *, where: str) -> bytes:
    """Return a manifest file that is of another version, of a table that has none before it.

    Its indexes are of no later one. The transaction that made it is in the file alone: others who commit
    look for the files of transactions after the version that they begin with.

    Parameters
    ----------
    manifest, version, where
        As for :func:`with_version`.

    Raises
    ------
    CorruptionError
        The bytes are not a Lance table manifest, or there is something else in it.
    """
    head = read_head(manifest, where=where)
    section, transaction = read_sections(manifest, where=where)
    head.version = version
    if transaction is not None:
        head.ClearField("transaction_file")
    for entry in section.indices:
        entry.dataset_version = min(entry.dataset_version, version)
    return assemble(manifest, head, section, transaction)


def with_index_details(manifest: Bytes, name: str, details: bytes, *, where: str) -> bytes:
    """Return a manifest file in which an index has other details, and otherwise the same.

    Parameters
    ----------
    manifest : bytes-like
        The whole manifest file.
    name : str
        Name of the index; there is one of that name.
    details : bytes
        The serialised details.
    where : str
        Path of the file, for the error.

    Raises
    ------
    CorruptionError
        The bytes are not a Lance table manifest, or it does not have exactly one index of that name.
    """
    head = read_head(manifest, where=where)
    section, transaction = read_sections(manifest, where=where)
    entries = [one for one in section.indices if one.name == name]
    if len(entries) != 1:
        raise CorruptionError(
            f"version {head.version} of the table has {len(entries)} indexes {name!r}", where=where
        )
    entries[0].index_details.value = details
    return assemble(manifest, head, section, transaction)


def assemble(
    manifest: Bytes,
    head: memwal_pb2.TableManifest,
    section: memwal_pb2.IndexSection,
    transaction: memwal_pb2.Transaction | None,
) -> bytes:
    """Return a manifest file made of its parts, with the footer of another one."""
    parts = [_framed(section)]
    head.index_section = 0
    if transaction is not None:
        head.transaction_section = len(parts[0])
        parts.append(_framed(transaction))
    _, major, minor, magic = _FOOTER.unpack(memoryview(manifest).cast("B")[-_FOOTER.size :])
    return b"".join((*parts, _framed(head), _FOOTER.pack(sum(map(len, parts)), major, minor, magic)))


def _framed(message: Message) -> bytes:
    data = messages.serialize(message)
    return _LENGTH.pack(len(data)) + data


def _head_offset(view: memoryview, where: str) -> int:
    if len(view) < _FOOTER.size:
        raise CorruptionError(f"the table manifest has only {len(view)} bytes", where=where)
    offset, _, _, magic = _FOOTER.unpack_from(view, len(view) - _FOOTER.size)
    if magic != _MAGIC:
        raise CorruptionError(f"the table manifest ends in {magic!r}, not in {_MAGIC!r}", where=where)
    return int(offset)


def _read(message: M, view: memoryview, offset: int, what: str, where: str) -> M:
    """Parse the length-prefixed message at ``offset``."""
    start = offset + _LENGTH.size
    if start > len(view):
        raise CorruptionError(f"the {what} starts at byte {offset} of {len(view)}", where=where)
    end = start + _LENGTH.unpack_from(view, offset)[0]
    if end > len(view):
        raise CorruptionError(f"the {what} ends at byte {end} of {len(view)}", where=where)
    return messages.parse(message, view[start:end], what=what, where=where)
