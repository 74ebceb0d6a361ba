"""Results for programs: JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from weir.changes.feed import ChangeBatch
from weir.cli.ingest import IngestReport
from weir.cli.json_text import json_lines
from weir.cli.output.interface import Output
from weir.first_index.upgrade import UpgradeReport
from weir.format.json_members import instant_text
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

__all__ = ["JsonOutput"]


class JsonOutput(Output):
    """One JSON object for a result; one line of JSON for a row."""

    shows_all_rows = True

    def created(self, table: Table, status: TableStatus, *, how: str = "created") -> None:
        """Print the table's location, schema, key and shard spec."""
        self._print(
            {
                "uri": table.uri,
                "schema": format_schema(table.schema),
                "primary_key": list(table.primary_key),
                "sharded_by": table.sharded_by,
                "library_writable": status.library_writable,
                "library_note": status.library_note,
            }
        )

    def altered(self, table: Table) -> None:
        """Print the table's location and columns."""
        shown = {"uri": table.uri, "schema": format_schema(table.schema)}
        self._print({**shown, "expiry": table.expiry, "sort_by": list(table.sort_by)})

    def ingested(self, report: IngestReport, merged: MergeReport | None) -> None:
        """Print the report, with that of the merge in it."""
        self._print(
            {
                **asdict(report),
                "seconds": round(report.seconds, 3),
                "rows_per_second": round(report.rows_per_second, 1),
                "merge": None if merged is None else merged.to_dict(),
            }
        )

    def rows(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        """Print every row as a line of JSON, as :mod:`weir.cli.json_text` says."""
        for batch in batches:
            sys.stdout.write("".join(f"{line}\n" for line in json_lines(batch)))

    def count(self, rows: int) -> None:
        """Print the count."""
        self._print({"count": rows})

    def plan(self, text: str) -> None:
        """Print the plan, a list of lines."""
        self._print({"plan": text.splitlines()})

    def saved(self, rows: int, path: Path) -> None:
        """Print how many rows are in which file."""
        self._print({"rows": rows, "output": str(path)})

    def status(self, status: TableStatus, *, all_shards: bool = False) -> None:
        """Print the status, every shard of it, with the totals over all shards."""
        totals = {
            "unmerged_rows": status.unmerged_rows,
            "unflushed_rows": status.unflushed_rows,
            "lag_seconds": status.lag_seconds,
        }
        self._print({**status.to_dict(), **totals})

    def merged(self, report: MergeReport) -> None:
        """Print the report."""
        self._print(report.to_dict())

    def compacted(self, report: CompactReport) -> None:
        """Print the report."""
        self._print(asdict(report))

    def indexes(self, indexes: Sequence[IndexReport]) -> None:
        """Print the indexes, a list in an object."""
        self._print({"indexes": [index.to_dict() for index in indexes]})

    def indexes_built(self, definitions: Sequence[IndexDefinition]) -> None:
        """Print what was built, a list in an object."""
        self._print(
            {
                "built": [
                    {
                        "name": one.name,
                        "kind": str(one.kind),
                        "column": one.column,
                        "parameters": dict(one.parameters),
                    }
                    for one in definitions
                ]
            }
        )

    def index_dropped(self, name: str) -> None:
        """Print its name."""
        self._print({"dropped": name})

    def caught_up(self, report: CatchUpReport) -> None:
        """Print the report."""
        self._print(asdict(report))

    def maintained(self, report: MaintenanceReport, table: str | None = None) -> None:
        """Print the four reports as one line."""
        named = {} if table is None else {"table": table}
        self._print(
            {
                **named,
                "merge": report.merge.to_dict(),
                "compact": asdict(report.compact),
                "indexes": asdict(report.indexes),
                "garbage": report.garbage.to_dict(),
            }
        )
        sys.stdout.flush()

    def recovered(self, report: RecoverReport) -> None:
        """Print the report, with its totals."""
        self._print(report.to_dict())

    def repaired(self, report: RepairReport) -> None:
        """Print the report."""
        self._print(report.to_dict())

    def dropped(self, report: DropReport) -> None:
        """Print the report."""
        self._print(report.to_dict())

    def upgraded(self, report: UpgradeReport) -> None:
        """Print the report."""
        self._print(report.to_dict())

    def collected(self, report: GarbageReport) -> None:
        """Print the report, with its totals."""
        self._print(report.to_dict())

    def snapshot(self, token: SnapshotToken, retain: timedelta | None) -> None:
        """Print the token, what it names, and for how many seconds it is kept."""
        self._print(
            {
                "token": str(token),
                "base_version": token.base_version,
                "shards": {str(cut.shard_id): cut.position for cut in token.shards},
                "retain_seconds": None if retain is None else retain.total_seconds(),
            }
        )

    def released(self, token: SnapshotToken) -> None:
        """Print the token."""
        self._print({"released": str(token)})

    def tagged(self, tag: Tag) -> None:
        """Print the tag."""
        self._print(_tag(tag))

    def kept_states(self, tags: Sequence[Tag], pins: Sequence[SnapshotPin]) -> None:
        """Print both."""
        self._print(
            {
                "tags": [_tag(tag) for tag in tags],
                "snapshots": [
                    {
                        "token": str(pin.token),
                        "base_version": pin.token.base_version,
                        "created_at": instant_text(pin.created_at),
                        "expires_at": instant_text(pin.expires_at),
                    }
                    for pin in pins
                ],
            }
        )

    def changes(self, change: ChangeBatch) -> None:
        """Print every change as a line of JSON."""
        self.rows(iter(change.rows.to_batches()), change.rows.schema)
        sys.stdout.flush()

    def described(self, description: Description) -> None:
        """Print what the object is, what it says and what is wrong with it, with its rows if asked for."""
        rows = {} if description.rows is None else {"rows": _json_rows(description.rows)}
        self._print(
            {
                "kind": description.kind,
                "where": description.where,
                "facts": description.facts,
                "problems": list(description.problems),
                **rows,
            }
        )

    def verified(self, report: VerifyReport) -> None:
        """Print the report."""
        self._print(report.to_dict())

    def pipeline_checked(self, found: PipelineCheck) -> None:
        """Print what was found."""
        self._print(asdict(found))

    def pipeline_status(self, state: PipelineState) -> None:
        """Print the state."""
        self._print(asdict(state))

    def pipeline_sampled(self, sample: MetricsSample) -> None:
        """Print the sample."""
        self._print({"sample": sample.to_dict()})
        sys.stdout.flush()

    def pipeline_ended(self, summary: PipelineSummary) -> None:
        """Print the summary."""
        self._print({"summary": asdict(summary)})

    def _print(self, value: Mapping[str, Any]) -> None:
        print(json.dumps(value, ensure_ascii=False))


def _json_rows(rows: pa.Table) -> list[Any]:
    return [json.loads(line) for batch in rows.to_batches() for line in json_lines(batch)]


def _tag(tag: Tag) -> dict[str, object]:
    return {
        "tag": tag.name,
        "token": str(tag.token),
        "base_version": tag.token.base_version,
        "created_at": instant_text(tag.created_at),
    }
