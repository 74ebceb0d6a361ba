"""Resharding a live table: more shards, fewer, or by another column.

The base table is not sharded, so only unmerged rows matter. Versions of a key in two shards have no order; so
no shard of the new rule ever has a row while one of a former rule has unmerged rows. In this order:

1. Flushed rows are merged, while writers continue.
2. The details of the MemWAL index name the new rule, and that the table is being resharded.
3. Every shard of another rule is claimed, flushed and sealed. Its writer is fenced, and waits.
4. What that has flushed is merged.
5. The details say that it is done. Writers continue in shards of the new rule.

Writers that create a shard check the details afterwards: either they see step 2, and write nothing there, or
step 3 finds their shard. Each step can be repeated by any process: a writer that finds an interrupted
resharding finishes it (:func:`finish_resharding`). Reads are not affected; the change feed yields the former
shards first.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from weir.base.details_commit import update_details
from weir.base.table import BaseTable
from weir.engine import failpoint
from weir.engine.concurrent_map import concurrent_map
from weir.engine.logs import get_logger
from weir.engine.runner import Runner, ThreadRunner
from weir.errors import ConflictError, FencedError, ShardSealedError
from weir.format.index_details import IndexDetails, ShardSpec
from weir.format.resharding import is_resharding, newest_spec_id, resharded, resharding_begun
from weir.format.shard_manifest import ShardManifest, ShardStatus
from weir.log.manifest_store import list_shards, read_latest_manifest
from weir.log.table_sharding import newest_spec
from weir.maintenance.claimed_shard import claimed_shard, seal
from weir.merge.plan import plan_merge
from weir.merge.service import merge_generations
from weir.sharding.shard_by import ShardBy
from weir.sharding.spec import build_spec, next_spec_id
from weir.write.lease.lease_terms import LeaseTerms

__all__ = ["finish_resharding", "followed_resharding", "reshard"]

_MAX_ROUNDS = 64
_WAIT_SECONDS = 5.0
_POLL_SECONDS = 0.05

_log = get_logger(__name__)


def reshard(base: BaseTable, shard_by: Sequence[ShardBy], runner: Runner | None = None) -> BaseTable:
    """Shard a table by another rule from now on, while it is written and read.

    Parameters
    ----------
    base : BaseTable
        The table at any version.
    shard_by : sequence of ShardBy
        The new rule.
    runner : Runner, optional
        Executes the merges. Default: threads of this process.

    Returns
    -------
    BaseTable
        The newest version of the table.

    Raises
    ------
    SchemaError, ShardingError
        The table cannot be sharded so. Nothing was changed.
    ConflictError
        Others committed during every attempt, or are resharding the table too.
    """
    runner = runner or ThreadRunner()
    base = finish_resharding(base.latest_to_change(), runner)
    wanted = _spec(base, shard_by)
    if wanted.fields == newest_spec(base).fields:
        return base
    _merge(base, runner)

    def begun(details: IndexDetails) -> IndexDetails:
        if is_resharding(details):
            raise ConflictError(
                "another process is resharding the table",
                where=base.uri,
                hint="Try again when it has finished",
            )
        manifests = [one for one in _manifests(base) if one is not None]
        return resharding_begun(details, replace(wanted, spec_id=next_spec_id(details, manifests)))

    base = update_details(base, begun)
    failpoint.reach("reshard.begun")
    return finish_resharding(base, runner)


def finish_resharding(base: BaseTable, runner: Runner | None = None) -> BaseTable:
    """Empty the shards of former rules into the base table, if that has begun and is not done.

    Parameters
    ----------
    base : BaseTable
        The table at any version.
    runner : Runner, optional
        Executes the merges. Default: threads of this process.
    """
    runner = runner or ThreadRunner()
    for _ in range(_MAX_ROUNDS):
        if not is_resharding(base.details):
            return base
        newest = newest_spec_id(base.details)
        former = [one for one in _manifests(base) if one is not None and one.shard_spec_id != newest]
        for shard_id in [one.shard_id for one in former if one.status is not ShardStatus.SEALED]:
            _close(base, shard_id)
        failpoint.reach("reshard.sealed")
        base = _merge(base, runner)
        # Others may have been faster, and a shard listed too late is closed in the next round.
        left = [one for one in _manifests(base) if one is not None and one.shard_spec_id != newest]
        if any(one.status is not ShardStatus.SEALED for one in left) or plan_merge(
            base.store, base.details, left
        ):
            base = base.latest()
            continue
        failpoint.reach("reshard.merged")

        def done(details: IndexDetails, newest: int = newest) -> IndexDetails:
            return resharded(details) if newest_spec_id(details) == newest else details

        base = update_details(base, done)
        _log.info("table.resharded", where=base.uri, version=base.version, shards=len(left))
    raise ConflictError(
        f"shards of former rules were written to during each of {_MAX_ROUNDS} attempts to empty them",
        where=base.uri,
        hint="Call it again",
    )


def followed_resharding(base: BaseTable, spec_id: int) -> BaseTable | None:
    """Return a table once it is sharded by another rule than that of a writer; None if it is not.

    Waits while another process reshards it, and takes over if that appears to have died. A writer opened
    meanwhile may already have the new rule: then it can write from then on.

    Parameters
    ----------
    base : BaseTable
        The table at any version.
    spec_id : int
        The rule of the writer.
    """
    base = base.latest()
    if not is_resharding(base.details):
        return None if newest_spec_id(base.details) == spec_id else base
    give_up = time.monotonic() + _WAIT_SECONDS
    while is_resharding(base.details):
        if time.monotonic() >= give_up:
            return finish_resharding(base)
        time.sleep(_POLL_SECONDS)
        base = base.latest()
    return base


def _close(base: BaseTable, shard_id: UUID) -> None:
    """Flush and seal a shard, fencing its writer."""
    for _ in range(_MAX_ROUNDS):
        try:
            with claimed_shard(base, shard_id, LeaseTerms(takeover=True)) as writer:
                writer.flush()
                failpoint.reach("reshard.flushed")
                seal(base, writer)
        except FencedError:
            continue  # another writer has claimed it, and may have written to it
        except ShardSealedError:
            pass
        return
    raise ConflictError(
        f"shard {shard_id} was claimed by others during each of {_MAX_ROUNDS} attempts to seal it",
        where=base.uri,
        hint="Call it again",
    )


def _merge(base: BaseTable, runner: Runner) -> BaseTable:
    manifests = [one for one in _manifests(base) if one is not None]
    merge_generations(base.latest(), manifests, runner)
    return base.latest()


def _manifests(base: BaseTable) -> list[ShardManifest | None]:
    store = base.store
    return list(
        concurrent_map(
            lambda shard_id: read_latest_manifest(store, shard_id),
            list_shards(store),
            is_local=store.is_local,
            engine=store.engine,
        )
    )


def _spec(base: BaseTable, shard_by: Sequence[ShardBy]) -> ShardSpec:
    """Return the spec of a rule, which gets its id when it is recorded."""
    stays = base.primary_key if base.append_only is None else tuple(base.schema.names)
    return build_spec(shard_by, base.schema, stays, base.field_ids, births=base.births)
