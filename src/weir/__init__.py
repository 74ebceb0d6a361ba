"""Weir: stream fresh rows into Lance tables.

Upserts and deletes are durable when acknowledged, visible to strong readers at once, and merged into
the table by jobs that run beside the writers. See :func:`weir.create` for an example.
"""

from __future__ import annotations

import weir.library_log  # noqa: F401  # before the library is imported
from weir import errors
from weir.format.snapshot_token import SnapshotToken
from weir.format.source import Source
from weir.indexing.definition import IndexDefinition
from weir.indexing.policy import IndexPolicy
from weir.read.snapshot import bounded
from weir.read.text_query import BooleanQuery, BoostQuery, MatchQuery, MultiMatchQuery, PhraseQuery
from weir.services.merge_policy import MergePolicy
from weir.sharding.shard_by import (
    bucket,
    day,
    expression,
    hour,
    identity,
    month,
    multi_bucket,
    truncate,
    unsharded,
    year,
)
from weir.table import Table, adopt, create, open

__version__ = "0.1.0"

__all__ = [
    "BooleanQuery",
    "BoostQuery",
    "IndexDefinition",
    "IndexPolicy",
    "MatchQuery",
    "MergePolicy",
    "MultiMatchQuery",
    "PhraseQuery",
    "SnapshotToken",
    "Source",
    "Table",
    "__version__",
    "adopt",
    "bounded",
    "bucket",
    "create",
    "day",
    "errors",
    "expression",
    "hour",
    "identity",
    "month",
    "multi_bucket",
    "open",
    "truncate",
    "unsharded",
    "year",
]
