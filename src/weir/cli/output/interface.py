"""The interface of command output, whatever its form."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Named by annotations alone, while PySpark is optional and the library takes its time: `note` is
    # for every command.
    from collections.abc import Iterator, Sequence
    from datetime import timedelta
    from pathlib import Path

    import pyarrow as pa

    from weir.changes.feed import ChangeBatch
    from weir.cli.ingest import IngestReport
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
    from weir.spark.pipeline import MetricsSample, PipelineCheck, PipelineState, PipelineSummary
    from weir.table.table import Table

__all__ = ["Output", "note"]


class Output(ABC):
    """How results are shown."""

    shows_all_rows: bool
    """Whether every row of a scan is shown; otherwise as many as a person reads."""

    @abstractmethod
    def created(self, table: Table, status: TableStatus, *, how: str = "created") -> None:
        """Show a table that was created, or made in another way."""

    @abstractmethod
    def altered(self, table: Table) -> None:
        """Show the columns of a table that were changed."""

    @abstractmethod
    def ingested(self, report: IngestReport, merged: MergeReport | None) -> None:
        """Show what was ingested, and then merged."""

    @abstractmethod
    def rows(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        """Show rows."""

    @abstractmethod
    def count(self, rows: int) -> None:
        """Show how many rows there are."""

    @abstractmethod
    def plan(self, text: str) -> None:
        """Show what a scan would read."""

    @abstractmethod
    def saved(self, rows: int, path: Path) -> None:
        """Show that rows were written to a file."""

    @abstractmethod
    def status(self, status: TableStatus, *, all_shards: bool = False) -> None:
        """Show the state of a table."""

    @abstractmethod
    def merged(self, report: MergeReport) -> None:
        """Show what was merged."""

    @abstractmethod
    def compacted(self, report: CompactReport) -> None:
        """Show what was compacted."""

    @abstractmethod
    def indexes(self, indexes: Sequence[IndexReport]) -> None:
        """Show the indexes of a table."""

    @abstractmethod
    def indexes_built(self, definitions: Sequence[IndexDefinition]) -> None:
        """Show the indexes that were built."""

    @abstractmethod
    def index_dropped(self, name: str) -> None:
        """Show that an index is gone."""

    @abstractmethod
    def caught_up(self, report: CatchUpReport) -> None:
        """Show how indexes were brought up to the merged rows."""

    @abstractmethod
    def maintained(self, report: MaintenanceReport, table: str | None = None) -> None:
        """Show what a round of maintenance did, of which table of a database, though more may follow."""

    @abstractmethod
    def recovered(self, report: RecoverReport) -> None:
        """Show what was recovered, and what was left alone."""

    @abstractmethod
    def repaired(self, report: RepairReport) -> None:
        """Show what was repaired, or would be."""

    @abstractmethod
    def dropped(self, report: DropReport) -> None:
        """Show what was removed."""

    @abstractmethod
    def upgraded(self, report: UpgradeReport) -> None:
        """Show what an upgrade has done, or would do."""

    @abstractmethod
    def collected(self, report: GarbageReport) -> None:
        """Show what a garbage collection has done, and why."""

    @abstractmethod
    def snapshot(self, token: SnapshotToken, retain: timedelta | None) -> None:
        """Show a token that was taken, and for how long it is kept readable."""

    @abstractmethod
    def released(self, token: SnapshotToken) -> None:
        """Show that a token is not kept readable any more."""

    @abstractmethod
    def tagged(self, tag: Tag) -> None:
        """Show that a state has a name."""

    @abstractmethod
    def kept_states(self, tags: Sequence[Tag], pins: Sequence[SnapshotPin]) -> None:
        """Show the states that are kept: those with a name, and those for a time."""

    @abstractmethod
    def changes(self, change: ChangeBatch) -> None:
        """Show some changes, at once, though more may follow."""

    @abstractmethod
    def described(self, description: Description) -> None:
        """Show what an object says."""

    @abstractmethod
    def verified(self, report: VerifyReport) -> None:
        """Show what a check of a table found."""

    @abstractmethod
    def pipeline_checked(self, found: PipelineCheck) -> None:
        """Show what a check of a pipeline found."""

    @abstractmethod
    def pipeline_status(self, state: PipelineState) -> None:
        """Show how a pipeline is doing."""

    @abstractmethod
    def pipeline_sampled(self, sample: MetricsSample) -> None:
        """Show how a pipeline is doing, at once, though more will follow."""

    @abstractmethod
    def pipeline_ended(self, summary: PipelineSummary) -> None:
        """Show what a pipeline has done."""


def note(text: str) -> None:
    """Tell a person something that is not a result."""
    print(text, file=sys.stderr)
