"""Commands on a table as a whole: create it, alter its columns, and show its status."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

import weir
from weir.cli.options import AsJson, NoFsync, StorageOptions, Uri
from weir.cli.options import open_table as _open
from weir.cli.options import output_for as _output
from weir.cli.printable_text import printable
from weir.cli.progress import progress_bar
from weir.cli.text_values import parse_names, parse_pairs, parse_storage_options
from weir.engine.durations import parse_duration
from weir.errors import OptionError

__all__ = ["adopt", "alter", "clone", "create", "drop", "status", "upgrade"]

_ShardBy = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help='How rows are split into shards: "bucket(id, 8)". Default: one shard.',
        show_default=False,
    ),
]


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
    from weir.schema.text import parse_schema
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


def adopt(
    uri: Uri,
    primary_key: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN[,COLUMN]",
            help="Columns that identify a row, for a dataset without a primary key. They are marked as the "
            "key permanently.",
            show_default=False,
        ),
    ] = None,
    shard_by: _ShardBy = None,
    set_aside: Annotated[
        bool,
        typer.Option(
            "--set-aside",
            help="Move the remains of a former table aside, and fence its writers.",
        ),
    ] = False,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Turn a Lance dataset into a table, in place: its rows and versions stay."""
    from weir.sharding.shard_text import parse_shard_by

    table = weir.adopt(
        uri,
        primary_key=None if primary_key is None else parse_names(primary_key, "primary-key"),
        shard_by=parse_shard_by(shard_by) if shard_by is not None else None,
        set_aside=set_aside,
        storage_options=parse_storage_options(storage_option or ()),
        fsync=not no_fsync,
    )
    _output(json).created(table, table.status(), how="adopted")


def alter(
    uri: Uri,
    add: Annotated[
        list[str] | None,
        typer.Option(
            metavar="'NAME TYPE'",
            help="A column to add, null in every existing row: 'gate string'. May be repeated.",
            show_default=False,
        ),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column to drop. May be repeated.", show_default=False),
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OLD=NEW",
            help="A column to rename. May be repeated; all change at once, so two can swap their names.",
            show_default=False,
        ),
    ] = None,
    widen: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=TYPE", help="A column to widen: n=int64. May be repeated.", show_default=False
        ),
    ] = None,
    expire_by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="The column of times by which rows expire from now on.", show_default=False
        ),
    ] = None,
    expire_after: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long after that time: 7d, 12h.", show_default=False),
    ] = None,
    never_expire: Annotated[
        bool, typer.Option("--never-expire", help="Rows no longer expire.", show_default=False)
    ] = False,
    sort_by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            help="The columns by which the rows of an append-only table are sorted from now on.",
            show_default=False,
        ),
    ] = None,
    shard_by: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help='How rows are split into shards from now on: "bucket(id, 16)". Cannot be combined.',
            show_default=False,
        ),
    ] = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Add, drop, rename and widen columns, all in one step, while others read and write.

    The same step can change when rows expire and how they are sorted; changing how they are split into shards
    is a separate step.
    """
    from weir.schema.text import parse_column, parse_type
    from weir.sharding.shard_text import parse_shard_by

    if never_expire and (expire_by is not None or expire_after is not None):
        raise OptionError("--never-expire excludes --expire-after and --expire-by", where="--never-expire")

    columns = [parse_column(one) for one in add or ()]
    names = parse_pairs(rename or (), "rename", "OLD=NEW")
    types = {name: parse_type(text) for name, text in parse_pairs(widen or (), "widen", "n=int64").items()}
    table = _open(uri, storage_option, no_fsync)
    properties: dict[str, Any] = {"expire_by": None} if never_expire else {}
    if expire_by is not None:
        properties["expire_by"] = expire_by
    if expire_after is not None:
        properties["expire_after"] = parse_duration(expire_after, "expire-after")
    if sort_by is not None:
        properties["sort_by"] = parse_names(sort_by, "sort-by")
    if shard_by is not None:
        properties["shard_by"] = parse_shard_by(shard_by)
    table.alter(add=columns, drop=drop or (), rename=names, widen=types, **properties)
    _output(json).altered(table)


def status(
    uri: Uri,
    shards: Annotated[
        bool,
        typer.Option(
            "--shards", help="Print every shard. Default: ten, those with problems first; with --json all."
        ),
    ] = False,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Print problems, shards, epochs, lag and merge progress."""
    _output(json).status(_open(uri, storage_option, no_fsync).status(), all_shards=shards)


def clone(
    uri: Uri,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="Where to put the clone: an empty location.", show_default=False
        ),
    ],
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="The state to copy, as printed by weir snapshot. Default: the newest.",
            show_default=False,
        ),
    ] = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Copy a state of a table to another location, as an independent table."""
    table = weir.clone(
        uri,
        target,
        at=at,
        storage_options=parse_storage_options(storage_option or ()),
        fsync=not no_fsync,
    )
    _output(json).created(table, table.status())


def upgrade(
    uri: Uri,
    into: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET",
            help="Where to put an upgraded copy; the table stays as it is. Default: in place.",
            show_default=False,
        ),
    ] = None,
    primary_key: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN[,COLUMN]",
            help="Columns that identify a row, for a table whose key is not marked. They are marked as the "
            "key permanently, in the table itself.",
            show_default=False,
        ),
    ] = None,
    shard_by: _ShardBy = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done; write nothing.")
    ] = False,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Convert a table with the first form of the MemWAL index (regions) to the current form."""
    from weir.sharding.shard_text import parse_shard_by

    report = weir.upgrade(
        uri,
        into=into,
        primary_key=None if primary_key is None else parse_names(primary_key, "primary-key"),
        shard_by=parse_shard_by(shard_by) if shard_by is not None else None,
        dry_run=dry_run,
        storage_options=parse_storage_options(storage_option or ()),
        fsync=not no_fsync,
    )
    _output(json).upgraded(report)


def drop(
    uri: Uri,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm: what is deleted cannot be restored.")] = False,
    takeover: Annotated[
        bool,
        typer.Option("--takeover", help="Fence active writers, and wait until they have stopped."),
    ] = False,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Remove a table, with everything that belongs to it."""
    options = parse_storage_options(storage_option or ())
    if not yes:
        raise OptionError(
            "every row and version of the table would be permanently deleted",
            where=uri,
            hint="Give --yes to do it",
        )
    with progress_bar("drop") as progress:
        report = weir.drop(
            uri,
            takeover=takeover,
            storage_options=options,
            fsync=not no_fsync,
            on_progress=lambda done, total: progress(done / max(total, 1), f"{done} of {total} objects"),
            on_wait=lambda held: print(f"waiting: {printable(str(held))}", file=sys.stderr, flush=True),
        )
    _output(json).dropped(report)
