"""Commands that write and read rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weir.cli.bad_row_policy import BadRowPolicy
from weir.cli.commands.services import merge_with_progress as _merge
from weir.cli.input.formats import FileFormat
from weir.cli.options import AsJson, AtToken, Consistent, NoFsync, StorageOptions, Uri
from weir.cli.options import open_table as _open
from weir.cli.options import output_for as _output
from weir.cli.output import note
from weir.cli.progress import progress_bar
from weir.cli.text_values import parse_names
from weir.engine.durations import parse_duration
from weir.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

    from weir.read.scan import Scan
    from weir.snapshots.snapshot import Consistency

__all__ = ["get", "ingest_files", "scan", "sql"]

_ROWS_SHOWN = 100
"""Most rows of a scan that are printed as text without a limit."""


OutputFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write the rows to a .parquet, .csv, .arrow or .jsonl file.",
        show_default=False,
    ),
]


def ingest_files(
    uri: Uri,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Parquet, CSV, JSON lines or Arrow IPC files, also compressed; directories and patterns of "
            "them; - for standard input.",
            show_default=False,
        ),
    ],
    format: Annotated[
        FileFormat | None,
        typer.Option(
            help="Format of all files. Default: detected from names and first bytes.", show_default=False
        ),
    ] = None,
    op_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of the files that says whether to upsert or delete each row.",
            show_default=False,
        ),
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the keys in the files; other columns are ignored.")
    ] = False,
    batch_rows: Annotated[int, typer.Option(metavar="N", help="Rows that become durable together.")] = 10_000,
    delimiter: Annotated[str, typer.Option(metavar="CHARACTER", help="Separator of CSV values.")] = ",",
    null: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Text that means null in CSV, besides an empty value. May be repeated.",
            show_default=False,
        ),
    ] = None,
    on_bad_row: Annotated[
        BadRowPolicy,
        typer.Option(
            help="What to do with a row that does not fit the table: stop; skip it; or skip it and write it "
            "to the file of --quarantine. Skipped rows are counted, and the first ten are shown.",
        ),
    ] = BadRowPolicy.FAIL,
    quarantine: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --on-bad-row quarantine: the JSON lines file to append bad rows to, each with its "
            "file, row number, reason and content.",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long to wait for a shard that another writer holds: 30s, 5m. Default: not at all.",
            show_default=False,
        ),
    ] = None,
    takeover: Annotated[
        bool,
        typer.Option("--takeover", help="Claim a shard that another writer holds, which fences that writer."),
    ] = False,
    immutable: Annotated[
        bool,
        typer.Option(
            "--immutable",
            help="Promise that no row changes the columns the table is sharded by, if they are not part of "
            "its key.",
        ),
    ] = False,
    merge: Annotated[bool, typer.Option("--merge", help="Merge into the base table at the end.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check all files against the table and write nothing.")
    ] = False,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Upsert or delete the rows of files."""
    from weir.cli.ingest import IngestOptions, ingest
    from weir.cli.input.files import find_files

    options = IngestOptions(
        file_format=format,
        op_column=op_column,
        delete=delete,
        batch_rows=batch_rows,
        delimiter=delimiter,
        null_values=tuple(null or ()),
        dry_run=dry_run,
        on_bad_row=on_bad_row,
        quarantine=quarantine,
        lease_wait=timedelta(0) if wait is None else parse_duration(wait, "wait"),
        takeover=takeover,
        immutable=immutable,
    )
    table = _open(uri, storage_option, no_fsync)
    found = find_files(files)
    with progress_bar("ingest") as progress:
        report = ingest(
            table,
            found,
            options,
            on_progress=lambda rows, fraction: progress(fraction or None, f"{rows:,} rows"),
            on_wait=lambda held: progress(None, f"waiting: {held.message}"),
        )
    merged = _merge(table) if merge and not dry_run else None
    _output(json).ingested(report, merged)


def scan(
    uri: Uri,
    columns: Annotated[
        str | None,
        typer.Option(metavar="COLUMN,...", help="Columns, in order. Default: all.", show_default=False),
    ] = None,
    filter: Annotated[
        str | None, typer.Option(metavar="SQL", help='Condition, such as "delay > 60".', show_default=False)
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="Most rows to print.", show_default=False)
    ] = None,
    consistency: Consistent = "strong",
    at: AtToken = None,
    count: Annotated[bool, typer.Option("--count", help="Print only the number of rows.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print what would be read, and read nothing.")
    ] = False,
    output: OutputFile = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Print the rows of a table, unmerged ones included."""
    if sum((count, explain, output is not None)) > 1:
        raise OptionError("only one of --count, --explain and --output can be given", where="scan")
    if output is not None:
        _check_name(output)
    names = None if columns is None else parse_names(columns, "columns")
    table = _open(uri, storage_option, no_fsync)
    answer = _output(json)
    state = _state(consistency, at)
    found = table.scan(names, filter=filter, limit=limit, consistency=state, at=at)
    if count:
        answer.count(found.count())
    elif explain:
        answer.plan(found.explain())
    elif output is not None:
        answer.saved(_save(found, output), output)
    elif limit is not None or answer.shows_all_rows:
        plan = found.to_reader()
        answer.rows(plan, plan.schema)
    else:
        more = table.scan(names, filter=filter, limit=_ROWS_SHOWN + 1, consistency=state, at=at).to_table()
        answer.rows(iter(more.slice(0, _ROWS_SHOWN).to_batches()), more.schema)
        if more.num_rows > _ROWS_SHOWN:
            note(f"these are the first {_ROWS_SHOWN} rows; --limit, --json or --output gives more")


def get(
    uri: Uri,
    keys: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY...",
            help="Primary keys. A composite key is a,b or a JSON array.",
            show_default=False,
        ),
    ],
    columns: Annotated[
        str | None,
        typer.Option(metavar="COLUMN,...", help="Columns, in order. Default: all.", show_default=False),
    ] = None,
    consistency: Consistent = "strong",
    at: AtToken = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Look up rows by primary key. Keys that do not exist give no row."""
    names = None if columns is None else parse_names(columns, "columns")
    table = _open(uri, storage_option, no_fsync)
    from weir.cli.key_text import parse_keys

    wanted = parse_keys(keys, table.schema, table.primary_key)
    rows = table.get(wanted, names, consistency=_state(consistency, at), at=at)
    _output(json).rows(iter(rows.to_batches()), rows.schema)
    different = set(zip(*(column.to_pylist() for column in wanted.columns), strict=True))
    missing = len(different) - rows.num_rows
    if missing:
        note(f"{missing} of the keys {'have' if missing > 1 else 'has'} no row")


def sql(
    uri: Uri,
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="QUERY",
            help='One query, such as "SELECT carrier, avg(delay) FROM t GROUP BY carrier". Default: those of '
            "standard input, each ended by a semicolon; in a terminal that is a shell with history.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="What the query calls the table.")] = "t",
    consistency: Consistent = "strong",
    at: AtToken = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print what would be read, and read nothing.")
    ] = False,
    output: OutputFile = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Query a table with SQL, unmerged rows included."""
    if explain and output is not None:
        raise OptionError("only one of --explain and --output can be given", where="sql")
    if output is not None:
        _check_name(output)
    if query is None and output is not None:
        raise OptionError(
            "--output writes the rows of one query, and none is given", where="output", hint="Give the query"
        )
    table = _open(uri, storage_option, no_fsync)
    answer = _output(json)
    state = _state(consistency, at)

    def run(statement: str) -> None:
        found = table.sql(statement, name=name, consistency=state, at=at)
        if explain:
            answer.plan(found.explain())
            return
        with progress_bar("sql"):
            rows = found.to_table()
        if output is not None:
            from weir.cli.row_files import write_rows

            answer.saved(write_rows(iter(rows.to_batches()), rows.schema, output), output)
            return
        shown = rows if answer.shows_all_rows else rows.slice(0, _ROWS_SHOWN)
        answer.rows(iter(shown.to_batches()), shown.schema)
        if shown.num_rows < rows.num_rows:
            note(f"these are the first {_ROWS_SHOWN} of {rows.num_rows:,} rows; --json or --output gives all")

    if query is not None:
        run(query)
        return
    from weir.cli.sql_shell import run_sql_shell

    run_sql_shell(table, name, run)


def _state(consistency: str, at: str | None) -> str | Consistency:
    """Return the consistency to read with: it cannot be combined with a token, but must not be ignored."""
    from weir.snapshots.snapshot import STRONG

    return STRONG if at is not None and consistency == str(STRONG) else consistency


def _check_name(path: Path) -> None:
    """Refuse an output file before anything is read, if its name does not imply a format."""
    from weir.cli.row_files import output_format

    output_format(path)


def _save(found: Scan, path: Path) -> int:
    from weir.cli.row_files import write_rows

    with progress_bar("scan") as progress:
        plan = found.to_reader()
        return write_rows(
            _batches(plan), plan.schema, path, on_rows=lambda rows: progress(None, f"{rows:,} rows")
        )


def _batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    yield from reader
