"""What the commands answer: text for people, JSON for programs.

A command does its work and hands the result to an :class:`Output`; nothing else writes to standard
output. Notes, progress and errors go to standard error.
"""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table as TextTable
from rich.text import Text

from weir.cli.facts_text import print_facts
from weir.cli.ingest import IngestReport
from weir.cli.json_text import json_column, json_lines
from weir.cli.schema_text import format_schema
from weir.format.snapshot_token import SnapshotToken
from weir.read.changes import ChangeBatch
from weir.services.garbage_report import GarbageReport
from weir.services.inspect import Description
from weir.services.merge import MergeReport
from weir.services.status import TableStatus
from weir.services.verify import VerifyReport
from weir.table import Table

__all__ = ["JsonOutput", "Output", "TextOutput", "note"]

_WIDEST_CELL = 60
_MOST_ROWS = 100
"""Rows of an object that are printed for people."""
_UNBOUNDED_WIDTH = 100_000
"""Columns of a text table that no terminal shows: lines are as long as they need to be."""


class Output(ABC):
    """How results are shown."""

    shows_all_rows: bool
    """Whether every row of a scan is shown; otherwise as many as a person reads."""

    @abstractmethod
    def created(self, table: Table, status: TableStatus) -> None:
        """Show a table that was created."""

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
    def status(self, status: TableStatus) -> None:
        """Show the state of a table."""

    @abstractmethod
    def merged(self, report: MergeReport) -> None:
        """Show what was merged."""

    @abstractmethod
    def described(self, description: Description) -> None:
        """Show what an object says."""

    @abstractmethod
    def verified(self, report: VerifyReport) -> None:
        """Show what a check of a table found."""

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
    def changes(self, change: ChangeBatch) -> None:
        """Show some changes, at once, though more may follow."""


def note(text: str) -> None:
    """Tell a person something that is not a result."""
    print(text, file=sys.stderr)


class JsonOutput(Output):
    """One JSON object for a result; one line of JSON for a row."""

    shows_all_rows = True

    def created(self, table: Table, status: TableStatus) -> None:
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

    def ingested(self, report: IngestReport, merged: MergeReport | None) -> None:
        """Print the report, with that of the merge in it."""
        self._print(
            {
                **asdict(report),
                "seconds": round(report.seconds, 3),
                "rows_per_second": round(report.rows_per_second, 1),
                "merge": None if merged is None else asdict(merged),
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

    def status(self, status: TableStatus) -> None:
        """Print the status, with the totals over all shards."""
        totals = {
            "unmerged_rows": status.unmerged_rows,
            "unflushed_rows": status.unflushed_rows,
            "lag_seconds": status.lag_seconds,
        }
        self._print({**status.to_dict(), **totals})

    def merged(self, report: MergeReport) -> None:
        """Print the report."""
        self._print(asdict(report))

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

    def changes(self, change: ChangeBatch) -> None:
        """Print every change as a line of JSON."""
        self.rows(iter(change.rows.to_batches()), change.rows.schema)
        sys.stdout.flush()

    def _print(self, value: Mapping[str, Any]) -> None:
        print(json.dumps(value, ensure_ascii=False))


class TextOutput(Output):
    """Tables and sentences. A value that does not fit is cut; nothing in it is taken for markup."""

    shows_all_rows = False

    def __init__(self) -> None:
        self._console = Console(highlight=False, markup=False, emoji=False)
        if not self._console.is_terminal:
            self._console.width = _UNBOUNDED_WIDTH

    def created(self, table: Table, status: TableStatus) -> None:
        """Print the table's location, schema, key and shard spec."""
        self._console.print(f"created {table.uri}")
        self._pairs(
            {
                "schema": format_schema(table.schema),
                "primary key": ", ".join(table.primary_key),
                "sharded by": table.sharded_by,
                "note": status.library_note,
            }
        )

    def ingested(self, report: IngestReport, merged: MergeReport | None) -> None:
        """Print what was ingested and how fast."""
        files = _counted(report.files, "file")
        if report.dry_run:
            self._console.print(
                f"{_counted(report.rows, 'row')} of {files} fit the table; nothing was written"
            )
            return
        done = [f"{report.upserted:,} upserted"]
        if report.deleted:
            done.append(f"{report.deleted:,} deleted")
        self._console.print(
            f"{_counted(report.rows, 'row')} of {files} in {report.seconds:.1f} s "
            f"({report.rows_per_second:,.0f} rows/s), {', '.join(done)}, "
            f"in {_counted(report.shards, 'shard')}"
        )
        if merged is not None:
            self.merged(merged)

    def rows(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        """Print rows as a table."""
        shown = TextTable(box=None, pad_edge=False, header_style="bold")
        for field in schema:
            shown.add_column(Text(field.name), justify=_justification(field.type), overflow="ellipsis")
        for batch in batches:
            cells = [[_cell(value) for value in _texts(column)] for column in batch.columns]
            for row in zip(*cells, strict=True):
                shown.add_row(*row)
        if schema.names:
            self._console.print(shown)
        self._console.print(_counted(shown.row_count, "row"))

    def count(self, rows: int) -> None:
        """Print the count."""
        self._console.print(str(rows))

    def plan(self, text: str) -> None:
        """Print the plan, one source per line."""
        self._console.print(text, soft_wrap=True)

    def saved(self, rows: int, path: Path) -> None:
        """Print how many rows are in which file."""
        self._console.print(f"{_counted(rows, 'row')} written to {path}")

    def status(self, status: TableStatus) -> None:
        """Print the table as a whole, and a table of its shards."""
        self._console.print(status.uri)
        self._pairs(
            {
                "base table": f"version {status.base_version}, {_counted(status.base_rows, 'row')}",
                "primary key": ", ".join(status.primary_key),
                "sharded by": status.sharded_by,
                "waiting": f"{_counted(status.unmerged_rows, 'row')} for a merge, "
                f"{status.unflushed_rows:,} for a flush",
                "lag": f"{status.lag_seconds:.1f} s",
                "note": status.library_note,
            }
        )
        if not status.shards:
            self._console.print("no shard has been written yet")
            return
        shards = TextTable(box=None, pad_edge=False, header_style="bold")
        for name in ("shard", "rows with", "state", "lease"):
            shards.add_column(name)
        for name in ("epoch", "WAL", "generation", "merged", "unmerged", "rows", "unflushed", "lag"):
            shards.add_column(name, justify="right")
        for shard in status.shards:
            shards.add_row(
                str(shard.shard_id)[:8],
                Text(", ".join(f"{name}={value}" for name, value in shard.values.items())),
                shard.state,
                shard.lease,
                str(shard.epoch),
                str(shard.wal_position),
                str(shard.current_generation),
                str(shard.merged_generation),
                str(shard.unmerged_generations),
                f"{shard.unmerged_rows:,}",
                f"{shard.unflushed_rows:,}",
                f"{shard.lag_seconds:.1f} s",
            )
        self._console.print(shards)

    def merged(self, report: MergeReport) -> None:
        """Print what was merged."""
        if not report.generations:
            self._console.print(f"nothing to merge; the base table has version {report.version}")
            return
        self._console.print(
            f"{_counted(report.generations, 'generation')} of {_counted(report.shards, 'shard')} merged: "
            f"{_counted(report.rows_upserted, 'row')} upserted, {report.rows_deleted:,} deleted; "
            f"the base table has version {report.version}"
        )

    def described(self, description: Description) -> None:
        """Print what the object says, one fact per line, lists of objects as tables."""
        self._console.print(f"{description.kind} {description.where}", soft_wrap=True)
        print_facts(self._console, description.facts)
        if description.rows is not None:
            shown = description.rows.slice(0, _MOST_ROWS)
            self.rows(iter(shown.to_batches()), shown.schema)
            if shown.num_rows < description.rows.num_rows:
                note(f"these are the first {_MOST_ROWS} rows; --json gives all {description.rows.num_rows:,}")

    def verified(self, report: VerifyReport) -> None:
        """Print one line for each finding, and a sum."""
        for finding in report.findings:
            self._console.print(str(finding), soft_wrap=True)
        errors = len(report.errors)
        warnings = len(report.findings) - errors
        result = f"{_counted(errors, 'error')}, {_counted(warnings, 'warning')}"
        self._console.print(
            f"{_counted(report.shards, 'shard')}, {_counted(report.generations, 'generation')}, "
            f"{report.entries:,} log entries, base table version {report.base_version}: {result}"
        )

    def collected(self, report: GarbageReport) -> None:
        """Print how much was deleted and how much waits; then all that is garbage or old, and why."""
        deleted = f"{_counted(report.deleted_objects, 'object')} ({decimal(report.deleted_bytes)})"
        waiting = f"{report.waiting_objects:,} ({decimal(report.waiting_bytes)})"
        if report.dry_run:
            self._console.print(
                f"{deleted} would be deleted, {waiting} would wait for the horizon; nothing was written"
            )
        else:
            self._console.print(f"{deleted} deleted, {waiting} marked, to be deleted after the horizon")
        if not report.items and not report.kept:
            return
        shown = TextTable(box=None, pad_edge=False, header_style="bold")
        for name in ("", "what", "shard", "why"):
            shown.add_column(name)
        for name in ("objects", "size"):
            shown.add_column(name, justify="right")
        for item in report.items:
            size = decimal(item.nbytes) if item.nbytes else ""
            state = "delete" if item.deleted else "wait"
            shown.add_row(state, item.name, _short(item.shard_id), item.reason, f"{item.objects:,}", size)
        for kept in report.kept:
            shown.add_row("keep", kept.name, _short(kept.shard_id), kept.reason, "", "")
        self._console.print(shown)

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

    def changes(self, change: ChangeBatch) -> None:
        """Print changes as a table, what is known of each before its columns."""
        rows = change.rows
        shard = pa.repeat(str(change.shard_id)[:8], rows.num_rows)
        known = ["_op", "_position", "_epoch"]
        shown = rows.select([*known, *(name for name in rows.schema.names if name not in {*known, "_shard"})])
        shown = shown.add_column(1, "_shard", shard)
        self.rows(iter(shown.combine_chunks().to_batches()), shown.schema)
        sys.stdout.flush()

    def _pairs(self, pairs: Mapping[str, str]) -> None:
        width = max(len(name) for name in pairs)
        for name, value in pairs.items():
            if value:
                self._console.print(f"  {name:<{width}}  {value}", soft_wrap=True)


def _json_rows(rows: pa.Table) -> list[Any]:
    return [json.loads(line) for batch in rows.to_batches() for line in json_lines(batch)]


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _short(shard_id: UUID | None) -> str:
    return "" if shard_id is None else str(shard_id)[:8]


def _justification(kind: pa.DataType) -> Any:
    types = pa.types
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return "right" if is_number else "left"


def _texts(column: pa.Array) -> list[str | None]:
    types = pa.types
    if types.is_string(column.type) or types.is_large_string(column.type):
        return list(column.to_pylist())
    texts: list[str] = json_column(column).to_pylist()
    if not types.is_nested(column.type):
        texts = [text.strip('"') for text in texts]
    return [text if valid else None for text, valid in zip(texts, column.is_valid().to_pylist(), strict=True)]


def _cell(text: str | None) -> Text:
    if text is None:
        return Text("null", style="dim")
    if not text.isprintable():
        # Control characters could drive the terminal.
        text = json.dumps(text, ensure_ascii=False)[1:-1]
        text = "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)
    return Text(text if len(text) <= _WIDEST_CELL else f"{text[: _WIDEST_CELL - 1]}…")
