"""Maintenance commands: merge, compact, recover, collect garbage, and maintain."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

import weir
from weir.cli.options import AsJson, NoFsync, StorageOptions, Uri
from weir.cli.options import open_table as _open
from weir.cli.options import output_for as _output
from weir.cli.output import note
from weir.cli.progress import progress_bar
from weir.cli.repetition import repeat
from weir.cli.runners import OnSpark, runner_on
from weir.cli.text_values import parse_storage_options
from weir.config import DEFAULT_ROWS_PER_FRAGMENT
from weir.engine.durations import parse_duration
from weir.errors import ConflictError, OptionError, RunnerError, StorageError, TableNotFoundError, WeirError

if TYPE_CHECKING:
    from weir.engine.runner import Runner
    from weir.merge.service import MergeReport

# LanceDB's writers give no sign of life.
_QUIET_FOR = timedelta(minutes=10)

MinShare = Annotated[
    float,
    typer.Option(
        metavar="SHARE",
        help="Merge only if the unmerged rows are at least this share of the base table's rows, or a shard "
        "has 64 unmerged generations.",
    ),
]
MaxAge = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="With --min-share, also merge if rows have waited this long since their flush: 90s, 15m, 2h, "
        "1d. Default: they may wait for ever.",
        show_default=False,
    ),
]

__all__ = ["collect_garbage", "compact", "maintain", "merge", "merge_with_progress", "recover", "repair"]


def merge(
    uri: Uri,
    min_share: MinShare = 0.0,
    max_age: MaxAge = None,
    spark: OnSpark = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Merge flushed rows into the base table."""
    policy = _merge_policy(min_share, max_age)
    table = _open(uri, storage_option, no_fsync)
    with runner_on(spark) as runner:
        report = merge_with_progress(table, runner, policy)
    _output(json).merged(report)


VersionRetention = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Also remove versions of the base table superseded longer ago than this. Default: keep all.",
        show_default=False,
    ),
]


def collect_garbage(
    uri: Uri,
    horizon: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="How long garbage is kept after it was marked, so that running reads can finish: 90s, 15m, "
            "2h, 1d.",
        ),
    ] = "15m",
    version_retention: VersionRetention = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be deleted and why, and write nothing.")
    ] = False,
    spark: OnSpark = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Delete what is no longer needed: mark it, and delete what was marked a horizon ago."""
    waits = parse_duration(horizon, "horizon")
    retained = None if version_retention is None else parse_duration(version_retention, "version-retention")
    table = _open(uri, storage_option, no_fsync)
    with runner_on(spark) as runner, progress_bar("collect") as progress:
        report = table.maintenance.collect_garbage(
            horizon=waits,
            dry_run=dry_run,
            runner=runner,
            on_progress=lambda done, total: progress(done / max(total, 1), f"{done} of {total} steps"),
            version_retention=retained,
        )
    _output(json).collected(report)


def compact(
    uri: Uri,
    rows_per_fragment: Annotated[
        int, typer.Option(metavar="N", help="Target rows per fragment.")
    ] = DEFAULT_ROWS_PER_FRAGMENT,
    max_deleted: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Share of a fragment's rows that may be deleted before it is rewritten.",
        ),
    ] = 0.1,
    spark: OnSpark = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Rewrite small fragments of the base table into large ones, without deleted rows."""
    table = _open(uri, storage_option, no_fsync)
    with runner_on(spark) as runner, progress_bar("compact") as progress:
        report = table.maintenance.compact(
            rows_per_fragment=rows_per_fragment,
            max_deleted=max_deleted,
            runner=runner,
            on_progress=lambda done, total: progress(done / total, f"{done} of {total} rewrites"),
        )
    _output(json).compacted(report)


def maintain(
    uri: Uri,
    horizon: Annotated[
        str,
        typer.Option(metavar="TIME", help="How long garbage is kept after it was marked: 90s, 15m, 2h, 1d."),
    ] = "15m",
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Begin another round this long after the last one began, until interrupted. The running "
            "round is finished; a round that failed because of the store or concurrent commits is reported "
            "and retried. Default: one round.",
            show_default=False,
        ),
    ] = None,
    quiet_for: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Flush logs of writers that take no lease, such as LanceDB's, once they have been idle for "
            "this long; a writer that is still running is fenced. Default: 10m for a database, never for a "
            "table.",
            show_default=False,
        ),
    ] = None,
    version_retention: VersionRetention = None,
    min_share: MinShare = 0.0,
    max_age: MaxAge = None,
    spark: OnSpark = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Merge, compact, catch up indexes and collect garbage, for a table or a LanceDB database.

    In a directory of tables NAME.lance every table with a write spec is maintained; each round includes new
    ones.
    """
    waits = parse_duration(horizon, "horizon")
    period = None if every is None else parse_duration(every, "every")
    if period is not None and not period:
        raise OptionError(
            "rounds without a pause would never end", where="every", hint="Give --every, such as --every 5m"
        )
    quiet = None if quiet_for is None else parse_duration(quiet_for, "quiet-for")
    retained = None if version_retention is None else parse_duration(version_retention, "version-retention")
    policy = _merge_policy(min_share, max_age)
    options = parse_storage_options(storage_option or ())
    from weir.table.database import database_tables

    find_tables = partial(database_tables, uri, storage_options=options, fsync=not no_fsync)
    is_database = bool(find_tables())
    if is_database and quiet is None:
        quiet = _QUIET_FOR
    single = None if is_database else _open(uri, storage_option, no_fsync)
    answer = _output(json)

    def run_round(runner: Runner, table: weir.Table, name: str | None = None) -> None:
        with progress_bar("maintain" if name is None else f"maintain {name}") as progress:
            report = table.maintenance.run(
                horizon=waits,
                runner=runner,
                on_progress=lambda what, done, total: progress(
                    done / max(total, 1), f"{what}: {done} of {total}"
                ),
                merge_policy=policy,
                quiet_for=quiet,
                version_retention=retained,
            )
        answer.maintained(report, name)

    def run_rounds(runner: Runner) -> None:
        """Look after every table, whatever becomes of the others."""
        if single is not None:
            run_round(runner, single)
            return
        failed: WeirError | None = None
        for name, place in find_tables().items():
            try:
                run_round(runner, _open(place, storage_option, no_fsync), name)
            except TableNotFoundError:
                continue  # no write spec, or dropped meanwhile
            except WeirError as error:
                note(f"error: {name}: {' '.join(str(error).split())}")
                failed = error
        if failed is not None:
            raise failed

    has_failed = False

    def run_one_of_many(runner: Runner) -> None:
        nonlocal single, has_failed
        try:
            if has_failed and single is not None:
                # A backup may be in its place: what was opened before does not write to that.
                single = _open(uri, storage_option, no_fsync)
            has_failed = False
            run_rounds(runner)
        except (ConflictError, StorageError, RunnerError) as error:
            has_failed = True
            if single is not None:
                note(f"error: {' '.join(str(error).split())}")
        except WeirError:
            if single is not None:
                raise

    with runner_on(spark) as runner:
        if period is None:
            run_rounds(runner)
        else:
            repeat(partial(run_one_of_many, runner), period)


def recover(
    uri: Uri,
    unleased: Annotated[
        bool,
        typer.Option(
            "--unleased",
            help="Also claim shards that were never leased; their writers are fenced if they are still "
            "running.",
        ),
    ] = False,
    spark: OnSpark = None,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Flush what vanished writers left in the logs of shards; live writers are left alone."""
    table = _open(uri, storage_option, no_fsync)
    with runner_on(spark) as runner, progress_bar("recover") as progress:
        report = table.maintenance.recover(
            unleased=unleased,
            runner=runner,
            on_progress=lambda done, total: progress(done / total, f"{done} of {total} shards"),
        )
    _output(json).recovered(report)


def repair(
    uri: Uri,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be repaired, and change nothing.")
    ] = False,
    prefer: Annotated[
        str | None,
        typer.Option(
            metavar="SHARD",
            help="The shard whose version of a key wins if several were written at the same moment.",
            show_default=False,
        ),
    ] = None,
    as_clone: Annotated[
        bool,
        typer.Option(
            "--as-clone",
            help="Treat the table as a clone: merge progress that its shards cannot have belongs to another "
            "table.",
        ),
    ] = False,
    json: AsJson = False,
    storage_option: StorageOptions = None,
    no_fsync: NoFsync = False,
) -> None:
    """Repair whatever can be repaired without losing a row."""
    if prefer is not None:
        try:
            UUID(prefer)
        except ValueError:
            raise OptionError("the id of a shard is expected, 36 characters", where="prefer") from None
    table = _open(uri, storage_option, no_fsync)
    _output(json).repaired(table.maintenance.repair(dry_run=dry_run, prefer=prefer, as_clone=as_clone))


def _merge_policy(min_share: float, max_age: str | None) -> weir.MergePolicy:
    age = None if max_age is None else parse_duration(max_age, "max-age")
    return weir.MergePolicy(min_share=min_share, max_age=age)


def merge_with_progress(
    table: weir.Table, runner: Runner | None = None, policy: weir.MergePolicy | None = None
) -> MergeReport:
    """Merge what has been flushed, with a progress bar."""
    with progress_bar("merge") as progress:
        return table.maintenance.merge(
            runner=runner,
            on_progress=lambda done, total: progress(done / total, f"{done} of {total} shards"),
            policy=policy,
        )
