"""Writing the marks of a merge into a version of a table that the library built without them.

The library can be asked from Python for a version with other fragments, and for one with other details of the
MemWAL index, not for both in one. A merge needs both in one (invariant I7). So the manifest of the first gets
the details of the second, and its transaction says what was merged, as in the library's own merges:
concurrent committers look there for conflicts.

A manifest file, as the library writes it: the ``IndexSection``, the ``Transaction`` and the ``Manifest``,
each after its length (uint32), without gaps; then the footer (:mod:`weir.format.table_manifest`).
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from weir.errors import CorruptionError
from weir.format import index_details, messages
from weir.format.buffers import Bytes
from weir.format.index_details import IndexDetails, MergedGeneration
from weir.format.proto import memwal_pb2
from weir.format.table_manifest import assemble, read_head, read_sections

__all__ = ["transaction_with_marks", "with_merge_marks"]


def with_merge_marks(
    manifest: Bytes, details: IndexDetails, index_id: UUID, marks: Sequence[MergedGeneration], *, where: str
) -> bytes:
    """Return a manifest file with other details of its MemWAL index, and a transaction that records marks.

    Parameters
    ----------
    manifest : bytes-like
        The whole manifest file, of a version that a library's ``Update`` has made.
    details : IndexDetails
        What its MemWAL index is to say.
    index_id : UUID
        The id that index is to have: the library keeps decoded details under it.
    marks : sequence of MergedGeneration
        What the transaction is to say is merged.
    where : str
        Path of the file, for the error.

    Raises
    ------
    CorruptionError
        The file is not laid out as the library writes it, or has no MemWAL index.
    """
    head = read_head(manifest, where=where)
    section, transaction = read_sections(manifest, where=where)
    entries = [one for one in section.indices if one.name == index_details.INDEX_NAME]
    if len(entries) != 1:
        raise CorruptionError(
            f"version {head.version} of the table has {len(entries)} MemWAL indexes", where=where
        )
    (entry,) = entries
    entry.uuid.uuid = index_id.bytes
    entry.dataset_version = head.version
    entry.index_details.value = index_details.encode(details)
    if transaction is not None:
        _mark(transaction, marks, where)
    return assemble(manifest, head, section, transaction)


def transaction_with_marks(data: Bytes, marks: Sequence[MergedGeneration], *, where: str) -> bytes:
    """Return the content of a transaction file, of an ``Update`` of the library's, that records marks.

    Raises
    ------
    CorruptionError
        It is not a transaction, or is of another kind.
    """
    transaction = messages.parse(memwal_pb2.Transaction(), data, what="transaction", where=where)
    _mark(transaction, marks, where)
    return messages.serialize(transaction)


def _mark(transaction: memwal_pb2.Transaction, marks: Sequence[MergedGeneration], where: str) -> None:
    if not transaction.HasField("update"):
        raise CorruptionError("the transaction does not replace rows", where=where)
    transaction.update.ClearField("merged_generations")
    for mark in marks:
        transaction.update.merged_generations.add(
            shard_id=memwal_pb2.Uuid(uuid=mark.shard_id.bytes), generation=mark.generation
        )
