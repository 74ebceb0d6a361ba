"""Commands about time: take a token of a table, and read what was written since one."""

from __future__ import annotations

from typing import Annotated

import typer

import weir
from weir.cli.options import AsJson, NoFsync, StorageOptions, Uri
from weir.cli.options import open_table as _open
from weir.cli.options import output_for as _output
from weir.cli.output import note
from weir.engine.durations import parse_duration

__all__ = ["changes", "snapshot"]


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
        token = weir.SnapshotToken.parse(release)
        table.release(token)
        _output(json).released(token)
        return
    _output(json).snapshot(table.snapshot(retain=kept), kept)


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
