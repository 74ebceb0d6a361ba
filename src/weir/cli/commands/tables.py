"""Commands about a table as a whole: create it, and say how it is."""

from __future__ import annotations

from typing import Annotated

import typer

import weir
from weir.cli.options import AsJson, NoFsync, StorageOptions, Uri
from weir.cli.options import open_table as _open
from weir.cli.options import output_for as _output
from weir.cli.text_values import parse_names, parse_storage_options
from weir.errors import OptionError

__all__ = ["create", "status"]


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
    from weir.cli.input.schema import read_schema
    from weir.schema_text import parse_schema
    from weir.sharding.shard_text import parse_shard_by

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


def status(
    uri: Uri, json: AsJson = False, storage_option: StorageOptions = None, no_fsync: NoFsync = False
) -> None:
    """Print shards, epochs, lag and merge progress."""
    _output(json).status(_open(uri, storage_option, no_fsync).status())
