"""The commands of ``weir``: each turns its options into one call and hands the result to an output."""

from __future__ import annotations

from collections.abc import Iterator
from json import dumps
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

import weir
from weir.cli.ingest import IngestOptions, ingest
from weir.cli.input.files import FileFormat, find_files
from weir.cli.input.schema import read_schema
from weir.cli.options import AsJson, AtToken, Consistent, NoFsync, StorageOptions, Uri
from weir.cli.output import JsonOutput, Output, TextOutput, note
from weir.cli.progress import progress_bar
from weir.cli.row_files import output_format, write_rows
from weir.cli.schema_text import parse_schema
from weir.cli.shard_text import parse_shard_by
from weir.cli.text_values import (
    parse_duration,
    parse_keys,
    parse_names,
    parse_storage_options,
    parse_vector,
)
from weir.demo.run import DemoOptions, run_demo
from weir.errors import OptionError
from weir.format.snapshot_token import SnapshotToken
from weir.read.scan import Scan
from weir.read.snapshot import STRONG, Consistency
from weir.services.inspect import inspect as describe_object
from weir.services.inspection.target import split_location
from weir.services.merge import MergeReport
from weir.storage.open import open_store
from weir.table import Table

__all__ = ["app"]

_ROWS_SHOWN = 100
"""Rows of a scan that are printed for people when they set no limit."""

app = typer.Typer(
    name="weir",
    help="Stream fresh rows into Lance tables: durable at once, visible at once, merged later.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"weir {weir.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _weir(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Stream fresh rows into Lance tables: durable at once, visible at once, merged later."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def create(
    uri: Uri,
    primary_key: Annotated[
        str, typer.Option(metavar="COLUMN[,COLUMN]", help="Columns that identify a row.", show_default=False)
    ],
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help='The columns: "id: int64!, name: string, vec: vector(128), at: timestamp(us, UTC)"; '
            '"!" means not null.',
            show_default=False,
        ),
    ] = None,
    schema_from: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Take the columns of a Parquet, Arrow, CSV or JSON lines file.",
            show_default=False,
        ),
    ] = None,
    shard_by: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help='How rows are split into shards: "bucket(id, 8)", "year(at), month(at)". '
            "Default: one shard.",
            show_default=False,
        ),
    ] = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Create a table."""
    if (schema is None) == (schema_from is None):
        raise OptionError("give the columns with --schema, or with --schema-from", where="schema")
    columns = parse_schema(schema) if schema is not None else read_schema(str(schema_from))
    table = weir.create(
        uri,
        columns,
        primary_key=parse_names(primary_key, "primary-key"),
        shard_by=parse_shard_by(shard_by) if shard_by is not None else None,
        storage_options=parse_storage_options(storage_option or ()),
        fsync=not no_fsync,
    )
    _output(json).created(table, table.status())


@app.command("ingest")
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
            help="Format of all files. Default: told from names and first bytes.", show_default=False
        ),
    ] = None,
    op_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of the files that says what to do with each row: upsert or delete.",
            show_default=False,
        ),
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the keys in the files; other columns are ignored.")
    ] = False,
    batch_rows: Annotated[int, typer.Option(metavar="N", help="Rows that become durable together.")] = 10_000,
    delimiter: Annotated[str, typer.Option(metavar="CHARACTER", help="Between the values of CSV.")] = ",",
    null: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="What stands for null in CSV, besides an empty value. May be repeated.",
            show_default=False,
        ),
    ] = None,
    merge: Annotated[bool, typer.Option("--merge", help="Merge into the base table at the end.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check all files against the table and write nothing.")
    ] = False,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Upsert or delete the rows of files."""
    options = IngestOptions(format, op_column, delete, batch_rows, delimiter, tuple(null or ()), dry_run)
    table = _open(uri, storage_option, no_fsync)
    found = find_files(files)
    with progress_bar("ingest") as progress:
        report = ingest(
            table,
            found,
            options,
            on_progress=lambda rows, fraction: progress(fraction or None, f"{rows:,} rows"),
        )
    merged = _merge(table) if merge and not dry_run else None
    _output(json).ingested(report, merged)


@app.command()
def scan(
    uri: Uri,
    columns: Annotated[
        str | None,
        typer.Option(metavar="COLUMN,...", help="Columns, in order. Default: all.", show_default=False),
    ] = None,
    filter: Annotated[
        str | None, typer.Option(metavar="SQL", help='Condition, such as "delay > 60".', show_default=False)
    ] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", help="Most rows.", show_default=False)] = None,
    consistency: Consistent = "strong",
    at: AtToken = None,
    count: Annotated[bool, typer.Option("--count", help="Print only how many rows there are.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print what would be read, and read nothing.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the rows to a .parquet, .csv, .arrow or .jsonl file.",
            show_default=False,
        ),
    ] = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Print the rows of a table, fresh ones included."""
    if sum((count, explain, output is not None)) > 1:
        raise OptionError("only one of --count, --explain and --output can be had", where="scan")
    if output is not None:
        output_format(output)
    names = None if columns is None else parse_names(columns, "columns")
    table = _open(uri, storage_option, no_fsync)
    answer = _output(json)
    state = _state(consistency, at)
    found = table.scan(names, filter, limit, consistency=state, at=at)
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
        more = table.scan(names, filter, _ROWS_SHOWN + 1, consistency=state, at=at).to_table()
        answer.rows(iter(more.slice(0, _ROWS_SHOWN).to_batches()), more.schema)
        if more.num_rows > _ROWS_SHOWN:
            note(f"these are the first {_ROWS_SHOWN} rows; --limit, --json or --output gives more")


@app.command()
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
    """Look rows up by primary key. Keys that do not exist have no row."""
    names = None if columns is None else parse_names(columns, "columns")
    table = _open(uri, storage_option, no_fsync)
    wanted = parse_keys(keys, table.schema, table.primary_key)
    rows = table.get(wanted, names, consistency=_state(consistency, at), at=at)
    _output(json).rows(iter(rows.to_batches()), rows.schema)
    missing = wanted.group_by(wanted.column_names).aggregate([]).num_rows - rows.num_rows
    if missing:
        note(f"{missing} of the keys {'have' if missing > 1 else 'has'} no row")


@app.command()
def search(
    uri: Uri,
    vector: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="Find the rows nearest to this vector, such as [0.1, 0.7], or to each of a list of vectors.",
            show_default=False,
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS",
            help="Find the rows that answer these words best. With --vector: those that are best by both.",
            show_default=False,
        ),
    ] = None,
    phrase: Annotated[
        bool, typer.Option("--phrase", help="The words have to stand one after the other.")
    ] = False,
    k: Annotated[int, typer.Option("--k", metavar="N", help="Rows to find.")] = 10,
    vector_column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Default: the only vector column.", show_default=False),
    ] = None,
    text_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Default: the only text column.", show_default=False)
    ] = None,
    filter: Annotated[
        str | None, typer.Option(metavar="SQL", help='Condition, such as "delay > 60".', show_default=False)
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(metavar="COLUMN,...", help="Columns, in order. Default: all.", show_default=False),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="l2|cosine|dot|hamming",
            help="Default: that of the base table's index.",
            show_default=False,
        ),
    ] = None,
    nprobes: Annotated[
        int | None,
        typer.Option(metavar="N", help="Partitions of the vector index to look into.", show_default=False),
    ] = None,
    refine: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="How many times as many candidates to rank exactly.", show_default=False
        ),
    ] = None,
    fusion: Annotated[str, typer.Option(metavar="rrf|weighted", help="How two rankings become one.")] = "rrf",
    consistency: Consistent = "strong",
    explain: Annotated[
        bool, typer.Option("--explain", help="Print what would be searched, and search nothing.")
    ] = False,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Find rows by vector, by text, or by both, fresh ones included."""
    if vector is None and text is None:
        raise OptionError("say what to find with --vector, with --text, or with both", where="search")
    names = None if columns is None else parse_names(columns, "columns")
    query = None if vector is None else parse_vector(vector)
    words: str | weir.PhraseQuery | None = text
    if phrase:
        if text is None:
            raise OptionError("--phrase says how to take the words of --text", where="phrase")
        words = weir.PhraseQuery(text)
    table = _open(uri, storage_option, no_fsync)
    if words is None:
        found = table.search(
            query,
            k,
            vector_column,
            filter,
            names,
            metric=metric,
            nprobes=nprobes,
            refine=refine,
            consistency=consistency,
        )
    elif query is None:
        found = table.search_text(words, k, text_column, filter, names, consistency=consistency)
    else:
        found = table.search_hybrid(
            query,
            words,
            k,
            filter,
            names,
            vector_column=vector_column,
            text_column=text_column,
            fusion=fusion,
            metric=metric,
            nprobes=nprobes,
            refine=refine,
            consistency=consistency,
        )
    answer = _output(json)
    if explain:
        answer.plan(found.explain())
        return
    rows = found.to_table()
    answer.rows(iter(rows.to_batches()), rows.schema)


@app.command()
def snapshot(
    uri: Uri,
    retain: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="How long garbage collection keeps what the token needs: 15m, 1h, 7d."
        ),
    ] = "1h",
    no_pin: Annotated[bool, typer.Option("--no-pin", help="Take a token that nothing is kept for.")] = False,
    release: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN", help="Keep nothing for this token any more; take none.", show_default=False
        ),
    ] = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Print a token of the table as it is now, for 'scan --at', 'get --at' and 'changes --since'."""
    kept = None if no_pin else parse_duration(retain, "retain")
    table = _open(uri, storage_option, no_fsync)
    if release is not None:
        token = SnapshotToken.parse(release)
        table.release(token)
        _output(json).released(token)
        return
    _output(json).snapshot(table.snapshot(retain=kept), kept)


@app.command()
def changes(
    uri: Uri,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN|earliest",
            help="Where to begin: after a token, or at the oldest change that is stored. Default: where the "
            "consumer has come to, or at the first change of the table.",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN", help="Where to end. Default: at what is committed now.", show_default=False
        ),
    ] = None,
    consumer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Go on where this consumer has come to, and store how far it has come after every batch "
            "that was printed. It is made when it does not exist.",
            show_default=False,
        ),
    ] = None,
    drop_consumer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Forget a consumer; print nothing.", show_default=False),
    ] = None,
    before: Annotated[bool, typer.Option("--before", help="Print the row before each change too.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more instead of ending.")] = False,
    poll: Annotated[
        str, typer.Option(metavar="TIME", help="With --follow: how long to wait between two looks.")
    ] = "1s",
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="With --follow: end when nothing has come for so long. Default: never.",
            show_default=False,
        ),
    ] = None,
    max_rows: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="End before the write with which it would be more changes; go on from there the next time.",
            show_default=False,
        ),
    ] = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Print what was written: upserts and deletes, per shard in commit order."""
    table = _open(uri, storage_option, no_fsync)
    if drop_consumer is not None:
        table.drop_consumer(drop_consumer)
        return
    feed = table.changes(
        since,
        until=until,
        before=before,
        consumer=consumer,
        follow=follow,
        poll=parse_duration(poll, "poll"),
        timeout=None if timeout is None else parse_duration(timeout, "timeout"),
        max_rows=max_rows,
    )
    answer = _output(json)
    for change in feed:
        answer.changes(change)
        if consumer is not None:
            feed.commit()
    if consumer is None:
        note(f"to go on from here: --since {feed.token}")
    else:
        feed.commit()


@app.command()
def status(
    uri: Uri, json: AsJson = False, storage_option: StorageOptions = None, no_fsync: NoFsync = False
) -> None:
    """Print shards, epochs, lag and merge progress."""
    _output(json).status(_open(uri, storage_option, no_fsync).status())


@app.command()
def inspect(
    uri: Annotated[
        str,
        typer.Argument(
            metavar="URI",
            help="The table, or any object of it, also a copy of one elsewhere.",
            show_default=False,
        ),
    ],
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="WHAT",
            help="What of the table: details, snapshots, marks, pin/ID, consumer/NAME, or SHARD, "
            "SHARD/manifest, SHARD/manifest/VERSION, SHARD/wal/POSITION, SHARD/generation/NUMBER, "
            "SHARD/lease, where SHARD is the beginning of an id; or a path below it. Default: an overview.",
            show_default=False,
        ),
    ] = None,
    rows: Annotated[
        bool, typer.Option("--rows", help="Print the rows of a log entry or a generation too.")
    ] = False,
    json: AsJson = False,
    storage_option: StorageOptions = None,
) -> None:
    """Print what an object of a table says, broken ones as far as they can be read."""
    root, path = split_location(uri, what)
    store = open_store(root, parse_storage_options(storage_option or ()), fsync=False)
    description = describe_object(store, path, rows=rows)
    _output(json).described(description)
    if description.problems:
        for problem in description.problems:
            note(f"error: {' '.join(problem.split())}")
        raise typer.Exit(1)


@app.command()
def verify(
    uri: Uri,
    skip_base_rows: Annotated[
        bool, typer.Option("--skip-base-rows", help="Do not read the rows of the base table.")
    ] = False,
    json: AsJson = False,
    storage_option: StorageOptions = None,
) -> None:
    """Check every invariant of a table that storage can show; the exit code is 1 if there is an error."""
    table = _open(uri, storage_option, no_fsync=True)
    with progress_bar("verify") as progress:
        report = table.verify(
            base_rows=not skip_base_rows,
            on_progress=lambda done, total: progress(done / max(total, 1), f"{done} of {total} tasks"),
        )
    _output(json).verified(report)
    if not report.passed:
        raise typer.Exit(1)


@app.command()
def merge(
    uri: Uri, json: AsJson = False, storage_option: StorageOptions = None, no_fsync: NoFsync = False
) -> None:
    """Merge what has been flushed into the base table."""
    _output(json).merged(_merge(_open(uri, storage_option, no_fsync)))


@app.command("gc")
def collect_garbage(
    uri: Uri,
    horizon: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="How long something stays after it was marked, so that whoever reads it can finish: "
            "90s, 15m, 2h, 1d.",
        ),
    ] = "15m",
    version_retention: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Also remove versions of the base table that were superseded for longer. Default: all stay.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be deleted and why, and write nothing.")
    ] = False,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Delete what nobody needs any more: mark it, and delete what was marked a horizon ago."""
    waits = parse_duration(horizon, "horizon")
    retained = None if version_retention is None else parse_duration(version_retention, "version-retention")
    table = _open(uri, storage_option, no_fsync)
    with progress_bar("collect") as progress:
        report = table.collect_garbage(
            waits,
            dry_run,
            on_progress=lambda done, total: progress(done / total, f"{done} of {total} steps"),
            version_retention=retained,
        )
    _output(json).collected(report)


@app.command()
def demo(
    directory: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where the table is built, to be kept. Default: a temporary directory.",
            show_default=False,
        ),
    ] = None,
    flights: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Only the first N flights. Default: all 336,776.", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides when the writer is killed.")] = 2013,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary directory.")] = False,
    json: AsJson = False,
    no_fsync: NoFsync = False,
) -> None:
    """Stream a year of real flights into a table, kill the writer, and check every row."""
    options = DemoOptions(directory=directory, flights=flights, seed=seed, keep=keep, fsync=not no_fsync)
    report = run_demo(options, to_standard_error=json)
    if json:
        print(dumps(report.to_dict()))
    if not report.passed:
        raise typer.Exit(1)


def _output(as_json: bool) -> Output:
    return JsonOutput() if as_json else TextOutput()


def _state(consistency: str, at: str | None) -> str | Consistency:
    """Return the consistency to read with: at a token there is none to choose, but it must not be ignored."""
    return STRONG if at is not None and consistency == str(STRONG) else consistency


def _open(uri: str, storage_option: list[str] | None, no_fsync: bool) -> Table:
    options = parse_storage_options(storage_option or ())
    return weir.open(uri, storage_options=options, fsync=not no_fsync)


def _merge(table: Table) -> MergeReport:
    with progress_bar("merge") as progress:
        return table.merge(
            on_progress=lambda done, total: progress(done / total, f"{done} of {total} shards")
        )


def _save(found: Scan, path: Path) -> int:
    with progress_bar("scan") as progress:
        plan = found.to_reader()
        return write_rows(
            _batches(plan), plan.schema, path, on_rows=lambda rows: progress(None, f"{rows:,} rows")
        )


def _batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    yield from reader
