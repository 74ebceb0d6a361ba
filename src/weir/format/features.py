"""The features that a table uses, which a version of Weir must know before it touches the table.

Their names are in the details of the MemWAL index, among the writer defaults, which the library keeps in its
own commits, whatever they are. Beside them are two dummy shard specs: the library's MemWAL writers open a
table with one spec at most, and so stop at a table with features. Plain reads of the base table use neither.
The library's LSM readers get the generations from their caller, and do not read the details: a feature that
they would misread has to stop them in the generations themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weir.format import append_only, expiry, keys, merge_engine, resharding
from weir.format.proto import memwal_pb2

__all__ = ["FEATURES", "KNOWN_FEATURES", "add_to", "take_from"]

FEATURES = "weir.features"
"""Name of the writer default with the features, and of the shard specs and fields that are none."""

KNOWN_FEATURES: frozenset[str] = frozenset(
    {append_only.FEATURE, expiry.FEATURE, keys.FEATURE, merge_engine.FEATURE, resharding.FEATURE}
)
"""The features that this version of Weir knows."""

_SENTINELS = 2


def add_to(message: memwal_pb2.MemWalIndexDetails, features: Iterable[str]) -> None:
    """Note features in serialised details; does nothing if there are none."""
    names = sorted(set(features))
    if not names:
        return
    message.writer_config_defaults[FEATURES] = ",".join(names)
    for _ in range(_SENTINELS):
        # Of id 0, which no spec has: they are numbered from 1.
        spec = message.shard_specs.add(spec_id=0)
        spec.fields.add(field_id=FEATURES, transform=FEATURES, result_type="utf8")


def take_from(
    defaults: Mapping[str, str], specs: Iterable[memwal_pb2.ShardSpec]
) -> tuple[tuple[str, ...], dict[str, str], list[memwal_pb2.ShardSpec]]:
    """Return the features of a table, and its writer defaults and shard specs without what notes them."""
    noted = defaults.get(FEATURES, "")
    features = tuple(sorted({name.strip() for name in noted.split(",")} - {""}))
    left = {name: value for name, value in defaults.items() if name != FEATURES}
    return features, left, [spec for spec in specs if not _is_sentinel(spec)]


def _is_sentinel(spec: memwal_pb2.ShardSpec) -> bool:
    return any(field.field_id == FEATURES for field in spec.fields)
