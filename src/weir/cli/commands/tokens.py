"""Commands on time: take a token of a table, and read what was written since one."""

from __future__ import annotations

from typing import Annotated

import typer

import weir
from weir.cli.options import AsJson, NoFsync, StorageOptions, Uri
from weir.cli.options import open_table as _open
from weir.cli.options import output_for as _output
from weir.cli.output import note
from weir.engine.durations import parse_duration
from weir.errors import OptionError

__all__ = ["changes", "snapshot"]


def snapshot(
    uri: Uri,
    retain: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="How long garbage collection keeps what the token needs: 15m, 1h, 7d."
        ),
    ] = "1h",
    no_pin: Annotated[
        bool, typer.Option("--no-pin", help="Take a token without keeping what it needs.")
    ] = False,
    release: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN", help="Stop keeping what this token needs; take none.", show_default=False
        ),
    ] = None,
    tag: Annotated[
        str | None,
        typer.Option(
            "--tag",
            metavar="NAME",
            help="Tag the state with a name for --at, kept until the tag is dropped; print no token.",
            show_default=False,
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TOKEN|TAG|TIME",
            help="With --tag: the state to name. Default: the table as it is now.",
            show_default=False,
        ),
    ] = None,
    drop_tag: Annotated[
        str | None,
        typer.Option("--drop-tag", metavar="NAME", help="Drop this tag.", show_default=False),
    ] = None,
    list_kept: Annotated[
        bool, typer.Option("--list", help="Print the tags and the tokens that are kept; take none.")
    ] = False,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Print a token of the current state, for 'scan --at' and 'changes --since', or name the state.

    '--list' lists the tags and the tokens that are kept.
    """
    asked = {"--tag": tag, "--drop-tag": drop_tag, "--list": list_kept or None, "--release": release}
    several = [name for name, value in asked.items() if value is not None]
    if len(several) > 1:
        raise OptionError(f"{' and '.join(several)} exclude each other", where=several[0])
    if at is not None and tag is None:
        raise OptionError("--at says which state a tag names, but there is no --tag", where="--at")
    kept = None if no_pin else parse_duration(retain, "retain")
    table = _open(uri, storage_option, no_fsync)
    if list_kept:
        _output(json).kept_states(table.tags.list(), table.tags.pinned())
        return
    if drop_tag is not None:
        table.tags.drop(drop_tag)
        return
    if tag is not None:
        _output(json).tagged(table.tags.create(tag, at))
        return
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
            metavar="TOKEN|TAG|TIME|earliest",
            help="Where to begin: after a token, a tag or a time, or at the oldest change that is stored. "
            "Default: at the position of the consumer, or at the first change of the table.",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN|TAG|TIME",
            help="Where to end. Default: at the newest change.",
            show_default=False,
        ),
    ] = None,
    consumer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Continue at the position of this consumer, and store its position after every printed "
            "batch. Created if it does not exist.",
            show_default=False,
        ),
    ] = None,
    drop_consumer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Drop a consumer; print nothing.", show_default=False),
    ] = None,
    before: Annotated[bool, typer.Option("--before", help="Print the row before each change too.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more instead of ending.")] = False,
    poll: Annotated[
        str, typer.Option(metavar="TIME", help="With --follow: how long to wait between checks.")
    ] = "1s",
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="With --follow: end when no change has come for this long. Default: never.",
            show_default=False,
        ),
    ] = None,
    max_rows: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Stop before the write that would exceed this many changes; the next call continues there.",
            show_default=False,
        ),
    ] = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Print committed upserts and deletes, per shard in commit order."""
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
