"""Verifying that no two shards hold rows that belong in one."""

from __future__ import annotations

from collections.abc import Sequence

from weir.base.table import BaseTable
from weir.errors import WeirError
from weir.format import layout
from weir.format.shard_manifest import ShardManifest
from weir.maintenance.verification.facts import TableFacts, values_of
from weir.maintenance.verification.finding import Finding, Findings
from weir.read.shared_keys import conflict, find_shared_keys, find_twins
from weir.snapshots.snapshot import SnapshotReader

__all__ = ["TWIN_CHECKS", "check_twins"]

_TWIN = "shard.twin"
_SHARED_KEYS = "shard.shared_keys"

TWIN_CHECKS = frozenset({_TWIN, _SHARED_KEYS})
"""The checks that it takes all shards for."""


def check_twins(base: BaseTable, manifests: Sequence[ShardManifest | None]) -> tuple[Finding, ...]:
    """Find shards with the same values, and shards that hold versions of the same keys.

    Parameters
    ----------
    base : BaseTable
        The base table.
    manifests : sequence of ShardManifest or None
        The newest of every shard; None where it cannot be read.
    """
    facts = TableFacts.of(base)
    if not facts.routers:
        return ()
    newest = max(facts.routers)
    readable = [one for one in manifests if one is not None and one.shard_spec_id == newest]
    values = {one.shard_id: values_of(one, facts.specs) for one in readable}
    own = Findings(base.uri)
    try:
        snapshot = SnapshotReader(base.store, base).take_newest()
        twins = find_twins(snapshot, facts.routers[newest], values)
        shared = find_shared_keys(snapshot, facts.routers[newest], values)
    except WeirError:
        # What cannot be read is found by the checks of it.
        return ()
    for first, *others in twins:
        for other in others:
            held = values.get(first) or values.get(other)
            text = f"shard {first} holds the rows with {held or 'its shard values'} too"
            own.error(_TWIN, layout.shard_directory(other), text)
    for one in shared:
        own.error(_SHARED_KEYS, layout.shard_directory(one.shards[0]), conflict(one, "").message)
    return tuple(own.found)
