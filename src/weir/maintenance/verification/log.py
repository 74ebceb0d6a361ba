"""Verifying the log of one shard: no gap in the range of replay, intact entries, epochs in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from uuid import UUID

import pyarrow as pa

from weir.errors import CorruptionError
from weir.format import layout, wal_entry
from weir.format.log_place import LogPlace
from weir.format.resolution import resolve
from weir.format.shard_manifest import ShardManifest
from weir.format.wal_entry import TOMBSTONE, WalEntry
from weir.log.recorded_position import recorded_position
from weir.log.wal import first_unflushed_position
from weir.maintenance.verification.facts import TableFacts
from weir.maintenance.verification.finding import Findings
from weir.maintenance.verification.objects import ShardObjects, read_many
from weir.storage.interface import ObjectStore

__all__ = ["check_log"]

_MAX_GAPS = 100


def check_log(table: TableFacts, newest: ShardManifest, objects: ShardObjects, findings: Findings) -> int:
    """Check every log entry there is, and those that should be; return how many were read.

    Covered entries are only checked to be whole: their rows are in generations, some of them are
    collected, and a refused writer may have left one there that counts for nothing.
    """
    shard_id = newest.shard_id
    start = first_unflushed_position(newest)
    if start == 0 and 0 not in objects.log:
        start = 1
    _find_gaps(table.store, newest, objects, start, findings)
    for position, paths in objects.log.items():
        if len(paths) > 1:
            findings.error("wal.doubled", paths[1], f"position {position} is held by {len(paths)} objects")
    read = 0
    before: tuple[int, WalEntry] | None = None
    appends: dict[str, int] = {}
    for position, path, entry in _entries(table.store, objects, start, findings):
        read += 1
        _check_append(LogPlace(shard_id, position), path, entry, appends, findings)
        if entry is None or position < start:
            before = None
            continue
        _check_epoch(newest, position, path, entry, before, findings)
        _check_rows(table, newest, path, entry, findings)
        before = (position, entry)
    _check_last_seen(table.store, newest, objects, shard_id, start, findings)
    return read


def _find_gaps(
    store: ObjectStore, newest: ShardManifest, objects: ShardObjects, start: int, findings: Findings
) -> None:
    """Report positions that are missing before others; add to ``objects`` what the listing just missed."""
    last = max(objects.log, default=start - 1)
    for position in islice(_missing(objects.log, start), _MAX_GAPS):
        paths = [layout.wal_path(newest.shard_id, position, suffix) for suffix in layout.WAL_SUFFIXES]
        there = [path for path in paths if store.head(path) is not None]
        if there:
            # Written while the listing went on, which is not in the order of positions.
            objects.log[position] = there
        else:
            findings.error(
                "wal.gap",
                paths[0],
                f"there is no entry at position {position}, so that readers do not see those up to {last}",
            )
            return


def _missing(positions: Iterable[int], start: int) -> Iterator[int]:
    """Yield the positions from ``start`` on that are missing before others; there can be very many."""
    expected = start
    for position in sorted(position for position in positions if position >= start):
        yield from range(expected, position)
        expected = position + 1


def _check_last_seen(
    store: ObjectStore,
    newest: ShardManifest,
    objects: ShardObjects,
    shard_id: UUID,
    start: int,
    findings: Findings,
) -> None:
    last = max(objects.log, default=0)
    if (recorded := recorded_position(store, shard_id)) > max(
        last, newest.replay_after_wal_entry_position
    ) and store.head(layout.wal_path(shard_id, recorded)) is None:
        findings.error(
            "wal.lost",
            layout.wal_path(shard_id, recorded),
            f"the lease was written when position {recorded} existed, and the log ends at {last}",
        )
        return
    seen = newest.wal_entry_position_last_seen
    if seen >= start and seen > last:
        findings.error(
            "wal.lost",
            layout.wal_path(shard_id, seen),
            f"the manifest was written when position {seen} existed, and the log ends at {last}",
        )


def _entries(
    store: ObjectStore, objects: ShardObjects, start: int, findings: Findings
) -> Iterator[tuple[int, str, WalEntry | None]]:
    """Yield the entries that exist, in order; None for one that cannot be read."""
    positions = {paths[0]: position for position, paths in sorted(objects.log.items())}
    for path, data in read_many(store, positions):
        position = positions[path]
        if data is None:
            if position >= start:
                yield position, path, None
            continue  # collected since it was listed
        try:
            yield position, path, wal_entry.decode(data, where=path)
        except CorruptionError as error:
            text = f"position {position}: {error.message}"
            if position >= start:
                findings.error("wal.unreadable", path, text)
            else:
                findings.warning("wal.unreadable", path, f"{text} (its rows are in a generation)")
            yield position, path, None


def _check_append(
    place: LogPlace, path: str, entry: WalEntry | None, appends: dict[str, int], findings: Findings
) -> None:
    """Find an entry that lies in the place of another: it names its own, or has the id of another append."""
    if entry is None:
        return
    appended, write_id = entry.header.place, entry.header.write_id
    if appended is not None:
        if appended != place:
            findings.error("wal.place", path, f"{place} holds what was appended at {appended}")
    elif write_id is not None:
        first = appends.setdefault(write_id, place.position)
        if first != place.position:
            text = f"position {place.position} holds what was appended at {first} or there"
            findings.error("wal.copied", path, text)


def _check_epoch(
    newest: ShardManifest,
    position: int,
    path: str,
    entry: WalEntry,
    before: tuple[int, WalEntry] | None,
    findings: Findings,
) -> None:
    epoch = entry.header.writer_epoch
    if epoch > newest.writer_epoch:
        findings.error(
            "wal.epoch",
            path,
            f"position {position} was written with epoch {epoch}, and the manifest has {newest.writer_epoch}",
        )
    if before is None:
        return
    previous = before[1].header.writer_epoch
    if epoch < previous:
        findings.error(
            "wal.epoch",
            path,
            f"position {position} was written with epoch {epoch}, and the one before it with {previous}",
        )
    elif not entry.header.may_follow(before[1].header):
        findings.error(
            "wal.claim", path, f"position {position} was written under another claim than the one before it"
        )
    # One that names published generations is for readers, and fences nobody.
    if entry.header.fence and not entry.header.published and epoch == previous:
        findings.error(
            "wal.fence", path, f"position {position} fences the epoch {epoch}, which has begun before it"
        )


def _check_rows(
    table: TableFacts, newest: ShardManifest, path: str, entry: WalEntry, findings: Findings
) -> None:
    columns = resolve(entry.schema, table.row_schema)
    for batch in entry.batches:
        try:
            rows = columns.apply(batch, where=path)
        except CorruptionError as error:
            findings.error("wal.rows", path, error.message)
            return
        nulls = [name for name in (*table.primary_key, TOMBSTONE) if rows.column(name).null_count]
        if nulls:
            findings.error("wal.rows", path, f"the column {nulls[0]!r} has nulls")
            return
        strangers = table.strangers(_as_table(rows), newest)
        if strangers is not None:
            findings.error("wal.shard", path, strangers)
            return


def _as_table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])
