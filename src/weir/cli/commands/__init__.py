"""The commands of ``weir``: each turns its options into one call and passes the result to an output.

One module per subject; here they get their names, in the order in which the help lists them.

At its top such a module imports what declares its options, and nothing that takes time: help, the version
and mistakes in the options are answered at once. What a command needs of the library it imports when it
runs, or finds as an attribute of :mod:`weir`.
"""

from __future__ import annotations

from typing import Annotated

import typer

import weir
from weir.cli.commands import (
    completion,
    demo,
    events,
    indexes,
    inspection,
    pipeline,
    rows,
    search,
    service,
    services,
    tables,
    tokens,
)

__all__ = ["app"]

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


_index = typer.Typer(help="Build, list, drop and extend indexes.")
_index.callback(invoke_without_command=True)(indexes.help_if_alone)
_index.command("create")(indexes.create)
_index.command("auto")(indexes.auto)
_index.command("list")(indexes.list_indexes)
_index.command("drop")(indexes.drop)
_index.command("catch-up")(indexes.catch_up)

_pipeline = typer.Typer(help="Check a pipeline that a file describes, run it on Spark, ask how it is.")
_pipeline.callback(invoke_without_command=True)(pipeline.help_if_alone)
_pipeline.command("check")(pipeline.check)
_pipeline.command("run")(pipeline.run)
_pipeline.command("status")(pipeline.status)

_keys = typer.Typer(help="Make, list, rotate and revoke the keys of a service.")
_keys.callback(invoke_without_command=True)(service.help_if_alone)
_keys.command("create")(service.create_key)
_keys.command("list")(service.list_keys)
_keys.command("rotate")(service.rotate_key)
_keys.command("revoke")(service.revoke_key)

_events = typer.Typer(help="Keep typed events, ask for them in a language, replay and remember.")
_events.callback(invoke_without_command=True)(indexes.help_if_alone)
_events.command("create")(events.create)
_events.command("define")(events.define)
_events.command("append")(events.append)
_events.command("query")(events.query)
_events.command("replay")(events.replay)
_events.command("remember")(events.remember)
_events.command("show")(events.show)
_events.command("export")(events.export)
_events.command("restore")(events.restore)
_events.command("shell")(events.shell)

app.command("create")(tables.create)
app.command("adopt")(tables.adopt)
app.command("alter")(tables.alter)
app.command("ingest")(rows.ingest_files)
app.command("scan")(rows.scan)
app.command("get")(rows.get)
app.command("sql")(rows.sql)
app.command("search")(search.search)
app.command("snapshot")(tokens.snapshot)
app.command("changes")(tokens.changes)
app.command("status")(tables.status)
app.command("merge")(services.merge)
app.add_typer(_index, name="index")
app.command("compact")(services.compact)
app.command("recover")(services.recover)
app.command("repair")(services.repair)
app.command("gc")(services.collect_garbage)
app.command("maintain")(services.maintain)
app.command("clone")(tables.clone)
app.command("drop")(tables.drop)
app.command("upgrade")(tables.upgrade)
app.command("inspect")(inspection.inspect)
app.command("verify")(inspection.verify)
app.add_typer(_pipeline, name="pipeline")
app.command("serve")(service.serve)
app.add_typer(_keys, name="keys")
app.add_typer(_events, name="events")
app.command("completion")(completion.completion)
app.command("demo")(demo.demo)
