"""Results for people: tables and sentences."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from rich.console import Console
from rich.filesize import decimal

from weir.changes.feed import ChangeBatch
from weir.cli.ingest import IngestReport
from weir.cli.output.bad_rows_text import print_bad_rows
from weir.cli.output.garbage_text import print_garbage
from weir.cli.output.index_text import print_caught_up, print_definitions, print_indexes
from weir.cli.output.inspection_text import print_description, print_findings
from weir.cli.output.interface import Output, note
from weir.cli.output.phrases import counted, print_pairs
from weir.cli.output.pipeline_text import (
    print_pipeline_check,
    print_pipeline_status,
    print_pipeline_summary,
)
from weir.cli.output.rows_text import print_rows
from weir.cli.output.service_text import (
    print_compacted,
    print_maintained,
    print_merged,
    print_recovered,
    print_repaired,
)
from weir.cli.output.states_text import print_kept_states
from weir.cli.output.status_text import print_status
from weir.first_index.upgrade import UpgradeReport
from weir.format.snapshot_pin import SnapshotPin
from weir.format.snapshot_token import SnapshotToken
from weir.format.tag import Tag
from weir.indexing.definition import IndexDefinition
from weir.maintenance.catch_up import CatchUpReport
from weir.maintenance.compact import CompactReport
from weir.maintenance.drop import DropReport
from weir.maintenance.garbage.report import GarbageReport
from weir.maintenance.index_status import IndexReport
from weir.maintenance.inspect import Description
from weir.maintenance.maintain import MaintenanceReport
from weir.maintenance.recover import RecoverReport
from weir.maintenance.repair import RepairReport
from weir.maintenance.status import TableStatus
from weir.maintenance.verify import VerifyReport
from weir.merge.service import MergeReport
from weir.schema.text import format_schema
from weir.table.table import Table

if TYPE_CHECKING:
    from weir.spark.pipeline import MetricsSample, PipelineCheck, PipelineState, PipelineSummary

__all__ = ["TextOutput"]

_UNBOUNDED_WIDTH = 100_000
"""Columns of a text table that no terminal shows: lines are as long as they need to be."""


class TextOutput(Output):
    """Tables and sentences. A value that does not fit is cut; nothing in it is taken for markup."""

    shows_all_rows = False

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False)
        if not self._console.is_terminal:
            self._console.width = _UNBOUNDED_WIDTH

    def created(self, table: Table, status: TableStatus, *, how: str = "created") -> None:
        """Print the table's location, schema, key and shard spec."""
        self._console.print(f"{how} {table.uri}")
        print_pairs(
            self._console,
            {
                "schema": format_schema(table.schema),
                "primary key": ", ".join(table.primary_key),
                "sharded by": table.sharded_by,
                "note": status.library_note,
            },
        )

    def altered(self, table: Table) -> None:
        """Print the table's location and columns."""
        self._console.print(f"altered {table.uri}", soft_wrap=True)
        shown = {"schema": format_schema(table.schema)}
        if table.expiry is not None:
            shown["rows expire"] = table.expiry
        if table.sort_by:
            shown["sorted by"] = ", ".join(table.sort_by)
        print_pairs(self._console, shown)

    def ingested(self, report: IngestReport, merged: MergeReport | None) -> None:
        """Print what was ingested and how fast."""
        files = counted(report.files, "file")
        if report.dry_run:
            fit = counted(report.rows - report.bad_rows, "row")
            self._console.print(f"{fit} of {files} fit the table; nothing was written", soft_wrap=True)
            print_bad_rows(self._console, report)
            return
        done = [f"{report.upserted:,} upserted"]
        if report.deleted:
            done.append(f"{report.deleted:,} deleted")
        self._console.print(
            f"{counted(report.rows, 'row')} of {files} in {report.seconds:.1f} s "
            f"({report.rows_per_second:,.0f} rows/s), {', '.join(done)}, "
            f"in {counted(report.shards, 'shard')}",
            soft_wrap=True,
        )
        print_bad_rows(self._console, report)
        if merged is not None:
            self.merged(merged)

    def rows(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        """Print rows as a table."""
        print_rows(self._console, batches, schema)

    def count(self, rows: int) -> None:
        """Print the count."""
        self._console.print(str(rows))

    def plan(self, text: str) -> None:
        """Print the plan, one source per line."""
        self._console.print(text, soft_wrap=True)

    def saved(self, rows: int, path: Path) -> None:
        """Print how many rows are in which file."""
        self._console.print(f"{counted(rows, 'row')} written to {path}")

    def status(self, status: TableStatus, *, all_shards: bool = False) -> None:
        """Print what is wrong, the table as a whole, and its shards."""
        print_status(self._console, status, all_shards=all_shards)

    def merged(self, report: MergeReport) -> None:
        """Print what was merged."""
        print_merged(self._console, report)

    def compacted(self, report: CompactReport) -> None:
        """Print what was compacted."""
        print_compacted(self._console, report)

    def indexes(self, indexes: Sequence[IndexReport]) -> None:
        """Print the indexes as a table."""
        print_indexes(self._console, indexes)

    def indexes_built(self, definitions: Sequence[IndexDefinition]) -> None:
        """Print what was built, one index per line."""
        print_definitions(self._console, definitions)

    def index_dropped(self, name: str) -> None:
        """Say so."""
        self._console.print(f"dropped {name}", soft_wrap=True)

    def caught_up(self, report: CatchUpReport) -> None:
        """Print what was done for each index."""
        print_caught_up(self._console, report)

    def maintained(self, report: MaintenanceReport, table: str | None = None) -> None:
        """Print a line."""
        print_maintained(self._console, report, table)
        sys.stdout.flush()

    def recovered(self, report: RecoverReport) -> None:
        """Print what was flushed, and why shards were left alone."""
        print_recovered(self._console, report)

    def repaired(self, report: RepairReport) -> None:
        """Print one line for each repair."""
        print_repaired(self._console, report)

    def dropped(self, report: DropReport) -> None:
        """Print where the table was, and how much of it."""
        self._console.print(
            f"dropped {report.uri}: {counted(report.objects, 'object')} deleted ({decimal(report.bytes)})",
            soft_wrap=True,
        )

    def upgraded(self, report: UpgradeReport) -> None:
        """Print what was moved, and how to go back; of a dry run, what would be."""
        moved = (
            f"{counted(report.rows, 'row')} of {counted(report.mem_wals, 'MemWAL')} in "
            f"{counted(report.regions, 'region')}"
        )
        if report.version is None:
            self._console.print(f"would upgrade {report.uri}: {moved}; nothing was written", soft_wrap=True)
            return
        self._console.print(
            f"upgraded {report.uri}: {moved}; version {report.from_version} was the last with regions, "
            f"{report.version} is the newest",
            soft_wrap=True,
        )

    def collected(self, report: GarbageReport) -> None:
        """Print how much was deleted and how much waits; then all that is garbage or old, and why."""
        print_garbage(self._console, report)

    def described(self, description: Description) -> None:
        """Print what the object says, one fact per line, lists of objects as tables."""
        print_description(self._console, description)

    def verified(self, report: VerifyReport) -> None:
        """Print one line for each finding, and a sum."""
        print_findings(self._console, report)

    def pipeline_checked(self, found: PipelineCheck) -> None:
        """Print the table, and the columns if Spark was asked for them."""
        print_pipeline_check(self._console, found)

    def pipeline_status(self, state: PipelineState) -> None:
        """Print how far it is, what waits, and what is in quarantine."""
        print_pipeline_status(self._console, state)

    def pipeline_sampled(self, sample: MetricsSample) -> None:
        """Print nothing: a person watches the live line."""

    def pipeline_ended(self, summary: PipelineSummary) -> None:
        """Print a line for the stream, and one for each service."""
        print_pipeline_summary(self._console, summary)

    def snapshot(self, token: SnapshotToken, retain: timedelta | None) -> None:
        """Print the token alone, for a file or a variable, and tell for how long it is kept."""
        self._console.print(str(token), soft_wrap=True)
        if retain is None:
            note("nothing keeps it: it can be read until garbage collection passes it")
        else:
            note(f"it can be read for {retain}, until 'weir snapshot --release TOKEN', and perhaps longer")

    def released(self, token: SnapshotToken) -> None:
        """Say so."""
        self._console.print("released: garbage collection may have what it needs")

    def tagged(self, tag: Tag) -> None:
        """Say so."""
        self._console.print(f"tagged {tag.name}: version {tag.token.base_version} of the base table")
        note(f"it can be read with --at {tag.name}, until 'weir snapshot --drop-tag {tag.name}'")

    def kept_states(self, tags: Sequence[Tag], pins: Sequence[SnapshotPin]) -> None:
        """Print them as a table."""
        print_kept_states(self._console, tags, pins)

    def changes(self, change: ChangeBatch) -> None:
        """Print changes as a table, what is known of each before its columns."""
        rows = change.rows
        shard = pa.repeat(str(change.shard_id)[:8], rows.num_rows)
        known = ["_op", "_position", "_epoch"]
        shown = rows.select([*known, *(name for name in rows.schema.names if name not in {*known, "_shard"})])
        shown = shown.add_column(1, "_shard", shard)
        self.rows(iter(shown.combine_chunks().to_batches()), shown.schema)
        sys.stdout.flush()
