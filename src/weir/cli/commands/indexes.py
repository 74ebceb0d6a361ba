"""Commands on the indexes of a table: ``weir index create`` and others."""

from __future__ import annotations

from typing import Annotated

import typer

import weir
from weir.cli.options import AsJson, NoFsync, StorageOptions, Uri
from weir.cli.options import open_table as _open
from weir.cli.options import output_for as _output
from weir.cli.progress import progress_bar
from weir.cli.runners import OnSpark, runner_on
from weir.cli.text_values import parse_names, parse_parameters
from weir.config import RETRAIN_IMBALANCE_THRESHOLD

__all__ = ["auto", "catch_up", "create", "drop", "help_if_alone", "list_indexes"]

IndexName = Annotated[str, typer.Argument(metavar="NAME", help="The index.", show_default=False)]


def help_if_alone(context: typer.Context) -> None:
    """Build, list, drop and extend indexes."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def create(
    uri: Uri,
    column: Annotated[str, typer.Argument(metavar="COLUMN", help="The column.", show_default=False)],
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="BTREE, BITMAP, ZONEMAP, BLOOMFILTER, NGRAM, LABEL_LIST, INVERTED, IVF_FLAT, IVF_PQ or "
            "IVF_HNSW_SQ. Default: by the type of the column and a sample of its values.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Its name. Default: COLUMN_idx.", show_default=False),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Rebuild an existing index of that name.")
    ] = False,
    param: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A parameter of the index, such as num_partitions=256. May be repeated.",
            show_default=False,
        ),
    ] = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Build an index on a column, and maintain it from then on."""
    parameters = parse_parameters(param or ())
    table = _open(uri, storage_option, no_fsync)
    with progress_bar("index") as progress:
        progress(None, column)
        definition = table.indexes.create(column, kind, name=name, replace=replace, **parameters)
    _output(json).indexes_built([definition])


def auto(
    uri: Uri,
    rows_per_zone: Annotated[int, typer.Option(metavar="N", help="Rows per zone of a zone map.")] = 8192,
    enumerations: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN,...", help="Columns with few distinct values: bitmaps.", show_default=False
        ),
    ] = None,
    identifiers: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN,...",
            help="Columns that are searched for single values: Bloom filters.",
            show_default=False,
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN,...",
            help="Columns that are searched for words: inverted indexes.",
            show_default=False,
        ),
    ] = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Build every index that suits the types and values of the columns and that the table lacks."""
    policy = weir.IndexPolicy(
        rows_per_zone=rows_per_zone,
        enumerations=() if enumerations is None else parse_names(enumerations, "enumerations"),
        identifiers=() if identifiers is None else parse_names(identifiers, "identifiers"),
        text=() if text is None else parse_names(text, "text"),
    )
    table = _open(uri, storage_option, no_fsync)
    with progress_bar("index") as progress:
        progress(None, "every column")
        built = table.indexes.policy(policy)
    _output(json).indexes_built(built)


def list_indexes(
    uri: Uri, json: AsJson = False, storage_option: StorageOptions = None, no_fsync: NoFsync = False
) -> None:
    """Print the indexes, and how many merged rows each of them lacks."""
    _output(json).indexes(_open(uri, storage_option, no_fsync).status().indexes)


def drop(
    uri: Uri,
    name: IndexName,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Drop an index."""
    _open(uri, storage_option, no_fsync).indexes.drop(name)
    _output(json).index_dropped(name)


def catch_up(
    uri: Uri,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME...]", help="The indexes. Default: all that are maintained.", show_default=False
        ),
    ] = None,
    retrain_threshold: Annotated[
        float,
        typer.Option(
            metavar="RATIO",
            help="Retrain a vector index when its largest partition is this many times larger than its "
            "smallest.",
        ),
    ] = RETRAIN_IMBALANCE_THRESHOLD,
    spark: OnSpark = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Add merged rows to the indexes."""
    table = _open(uri, storage_option, no_fsync)
    with runner_on(spark) as runner, progress_bar("catch up") as progress:
        report = table.maintenance.catch_up_indexes(
            names=names or None,
            runner=runner,
            retrain_imbalance_threshold=retrain_threshold,
            on_progress=lambda done, total: progress(done / total, f"{done} of {total} steps"),
        )
    _output(json).caught_up(report)
