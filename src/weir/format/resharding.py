"""The state of a resharding, as recorded in the details of a table.

The new rule is stored after the earlier ones, which the shards made by them still name. While those shards
are being emptied into the base table, the details say so, and no shard of the new rule is created. The
released library, and a Weir that does not know of this, would write shards of either rule: the feature stops
both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weir.format.index_details import IndexDetails, ShardSpec

__all__ = [
    "FEATURE",
    "RESHARDING",
    "has_begun",
    "is_resharding",
    "newest_spec_id",
    "resharded",
    "resharding_begun",
]

FEATURE = "resharded"
"""Name of the feature of tables with shards of several rules."""

RESHARDING = "weir.resharding"
"""Writer default with the id of the new rule, for as long as shards of another one are not merged."""


def newest_spec_id(details: IndexDetails) -> int:
    """Return the id of the rule that new shards are made by; 0 of a table without any."""
    return max((spec.spec_id for spec in details.shard_specs), default=0)


def is_resharding(details: IndexDetails) -> bool:
    """Whether shards of a former rule are still being emptied."""
    return RESHARDING in details.writer_config_defaults


def has_begun(details: IndexDetails, rule: int) -> bool:
    """Whether shards of former rules than this are merged, so that its own may have rows."""
    newest = newest_spec_id(details)
    return newest > rule or (newest == rule and not is_resharding(details))


def resharding_begun(details: IndexDetails, spec: ShardSpec) -> IndexDetails:
    """Return the details of a table that will be sharded by ``spec`` once its other shards are merged."""
    return replace(
        details,
        shard_specs=(*details.shard_specs, spec),
        features=tuple(sorted({*details.features, FEATURE})),
        writer_config_defaults={**details.writer_config_defaults, RESHARDING: str(spec.spec_id)},
    )


def resharded(details: IndexDetails) -> IndexDetails:
    """Return the details of a table whose former shards are merged."""
    defaults = {name: one for name, one in details.writer_config_defaults.items() if name != RESHARDING}
    return replace(details, writer_config_defaults=defaults)
