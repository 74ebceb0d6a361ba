"""Commands that search: by vector, by text, or by both."""

from __future__ import annotations

from typing import Annotated

import typer

import weir
from weir.cli.options import AsJson, Consistent, NoFsync, StorageOptions, Uri
from weir.cli.options import open_table as _open
from weir.cli.options import output_for as _output
from weir.cli.text_values import parse_names, parse_vector
from weir.errors import OptionError

__all__ = ["search"]


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
            help="Find the rows that match these words best. With --vector: those that match both best.",
            show_default=False,
        ),
    ] = None,
    phrase: Annotated[bool, typer.Option("--phrase", help="The words must occur in sequence.")] = False,
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
        typer.Option(metavar="N", help="Partitions of the vector index to search.", show_default=False),
    ] = None,
    refine: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Rank this many times as many candidates by exact distance.", show_default=False
        ),
    ] = None,
    fusion: Annotated[
        str, typer.Option(metavar="rrf|weighted", help="How the two rankings are combined.")
    ] = "rrf",
    consistency: Consistent = "strong",
    explain: Annotated[
        bool, typer.Option("--explain", help="Print what would be searched, and search nothing.")
    ] = False,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Find rows by vector, by text, or by both, unmerged rows included."""
    if vector is None and text is None:
        raise OptionError("say what to find with --vector, with --text, or with both", where="search")
    names = None if columns is None else parse_names(columns, "columns")
    query = None if vector is None else parse_vector(vector)
    words: str | weir.PhraseQuery | None = text
    if phrase:
        if text is None:
            raise OptionError("--phrase needs --text", where="phrase")
        words = weir.PhraseQuery(text)
    table = _open(uri, storage_option, no_fsync)
    if words is None:
        found = table.search(
            query,
            k,
            column=vector_column,
            filter=filter,
            columns=names,
            metric=metric,
            nprobes=nprobes,
            refine=refine,
            consistency=consistency,
        )
    elif query is None:
        found = table.search_text(
            words, k, column=text_column, filter=filter, columns=names, consistency=consistency
        )
    else:
        found = table.search_hybrid(
            query,
            words,
            k,
            filter=filter,
            columns=names,
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
