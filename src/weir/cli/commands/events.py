"""Commands on event stores: create, define, append, query, replay, remember, export, restore, and a shell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import weir
from weir.cli.options import AsJson, NoFsync, StorageOptions
from weir.cli.options import output_for as _output
from weir.cli.output import note
from weir.cli.text_values import parse_storage_options
from weir.engine.durations import parse_duration
from weir.errors import InputError

if TYPE_CHECKING:
    from weir.events import EventStore, Result

__all__ = ["append", "create", "define", "export", "query", "remember", "replay", "restore", "shell", "show"]

StoreUri = Annotated[
    str,
    typer.Argument(
        metavar="URI",
        help="The event store: a directory, or a location such as s3://bucket/store.",
        show_default=False,
    ),
]


def _open(uri: str, storage_option: list[str] | None, no_fsync: bool) -> EventStore:
    options = parse_storage_options(storage_option or ())
    return weir.events.open(uri, storage_options=options, fsync=not no_fsync)


def _rows(result: Result, as_json: bool) -> None:
    table = result.to_table()
    for warning in result.warnings:
        note(warning)
    _output(as_json).rows(iter(table.to_batches()), table.schema)


def _json(text: str, what: str) -> Any:
    file = text[1:] if text.startswith("@") else None
    try:
        return json.loads(text if file is None else Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"the file cannot be read: {error.strerror or error}", where=file) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} is not JSON: {error}", where=file or what) from None


def create(
    uri: StoreUri,
    buckets: Annotated[
        int, typer.Option(help="Number of shards; all events of a context are in one of them.")
    ] = 4,
    flush_threshold: Annotated[
        int, typer.Option(help="Events of a shard that are held in memory before they are flushed.")
    ] = 100_000,
    events_per_zone: Annotated[
        int, typer.Option(help="Events per zone, the smallest piece that a query skips.")
    ] = 2048,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Create an event store."""
    weir.events.create(
        uri,
        buckets=buckets,
        flush_threshold=flush_threshold,
        events_per_zone=events_per_zone,
        storage_options=parse_storage_options(storage_option or ()),
        fsync=not no_fsync,
    ).close()
    note(f"Created the event store {uri}")


def define(
    uri: StoreUri,
    name: Annotated[str, typer.Argument(metavar="TYPE", help="The type of events.", show_default=False)],
    fields: Annotated[
        str,
        typer.Argument(metavar="JSON", help="Its fields, or @ followed by a file name.", show_default=False),
    ],
    version: Annotated[
        int | None, typer.Option(help="Its number. Default: the next.", show_default=False)
    ] = None,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Define a type of events, or a new version of one."""
    with _open(uri, storage_option, no_fsync) as store:
        store.define(name, _json(fields, "fields"), version)
        note(f"{name} has version {store.types()[name].version}")


def append(
    uri: StoreUri,
    name: Annotated[str, typer.Argument(metavar="TYPE", help="Its type.", show_default=False)],
    context: Annotated[str, typer.Argument(metavar="CONTEXT", help="Its context.", show_default=False)],
    payload: Annotated[
        str,
        typer.Argument(metavar="JSON", help="Its fields, or @ followed by a file name.", show_default=False),
    ],
    at: Annotated[
        str | None, typer.Option(help="When it happened. Default: now.", show_default=False)
    ] = None,
    expected: Annotated[
        int | None, typer.Option(help="The version its context must have.", show_default=False)
    ] = None,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Append an event; print its id."""
    with (
        _open(uri, storage_option, no_fsync) as store,
        store.writer(hold=False) as writer,
    ):
        print(
            writer.append(name, context, _json(payload, "payload"), timestamp=at, expected=expected).version
        )


def query(
    uri: StoreUri,
    text: Annotated[
        str, typer.Argument(metavar="COMMAND", help="A command of the language.", show_default=False)
    ],
    svg: Annotated[
        Path | None, typer.Option(help="Write the chart of a PLOT to this file.", show_default=False)
    ] = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Run a command of the language, a QUERY for example."""
    from weir.events.charts import svg_chart
    from weir.events.language import tree
    from weir.events.language.parser import parse

    command = parse(text)
    if svg is not None and not isinstance(command, tree.Plot):
        raise InputError("only a PLOT can be drawn", where="svg", hint='Ask "PLOT QUERY ... PER day"')
    with _open(uri, storage_option, no_fsync) as store:
        result = store.execute(text)
        if svg is not None:
            svg.write_text(svg_chart(result.to_table()), encoding="utf-8")
            note(f"Wrote {svg}")
        elif isinstance(command, tree.Explain) and not json:
            print(result.explain())
        elif hasattr(result, "to_table"):
            _rows(result, json)
        elif result is not None:
            print(result if isinstance(result, str) else result.version)


def replay(
    uri: StoreUri,
    context: Annotated[
        str | None, typer.Argument(metavar="CONTEXT", help="The context. Default: all.", show_default=False)
    ] = None,
    name: Annotated[
        str | None, typer.Option("--type", help="Only events of this type.", show_default=False)
    ] = None,
    since: Annotated[str | None, typer.Option(help="From this time on.", show_default=False)] = None,
    until: Annotated[str | None, typer.Option(help="Before this time.", show_default=False)] = None,
    using: Annotated[
        str | None,
        typer.Option(help="The field these times apply to. Default: timestamp.", show_default=False),
    ] = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Print events in order."""
    with _open(uri, storage_option, no_fsync) as store:
        _rows(store.replay(context, type=name, since=since, until=until, using=using), json)


def remember(
    uri: StoreUri,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name.", show_default=False)],
    text: Annotated[str, typer.Argument(metavar="QUERY", help="The query to remember.", show_default=False)],
    keep_rows: Annotated[
        int | None,
        typer.Option(help="How many of the newest rows to keep. Default: all.", show_default=False),
    ] = None,
    keep_age: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="Maximum age of rows, such as 30d. Default: any age.", show_default=False
        ),
    ] = None,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Keep the answer to a query up to date under a name."""
    age = None if keep_age is None else parse_duration(keep_age, "keep-age")
    with _open(uri, storage_option, no_fsync) as store:
        store.remember(name, text, keep_rows=keep_rows, keep_age=age)
        note(f"{name} is remembered")


def show(
    uri: StoreUri,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The materialisation.", show_default=False)],
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Print the current answer of a materialisation."""
    with _open(uri, storage_option, no_fsync) as store:
        _rows(store.show(name), json)


def export(
    uri: StoreUri,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The target folder.", show_default=False)],
    format: Annotated[str, typer.Option(metavar="parquet|snp", help="What files to write.")] = "parquet",
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Export all events to files. After a crash, the same call continues."""
    with _open(uri, storage_option, no_fsync) as store:
        report = store.export(folder, format=format)
        note(f"Exported {report.events:,} events in {report.files:,} files")


def restore(
    uri: StoreUri,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="An export.", show_default=False)],
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Import exported events and types into a store; those it already has are skipped."""
    with _open(uri, storage_option, no_fsync) as store:
        report = store.restore(folder)
        note(f"Restored {report.events:,} events of {report.files:,} files")


def shell(uri: StoreUri, storage_option: StorageOptions = None, no_fsync: NoFsync = False) -> None:
    """Run commands line by line, with history and completion; PLOT prints a chart."""
    from weir.cli.event_shell import run_shell

    with _open(uri, storage_option, no_fsync) as store:
        run_shell(store)
