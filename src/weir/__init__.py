"""Weir: stream fresh rows into Lance tables.

Upserts and deletes are durable when acknowledged, visible to strong readers at once, and merged into
the table by jobs that run beside the writers. See :func:`weir.create` for an example.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import weir.engine.library_log  # noqa: F401  # before the library is imported
from weir import errors

__version__ = "0.1.0"

__all__ = [
    "BooleanQuery",
    "BoostQuery",
    "Delete",
    "Engine",
    "IndexDefinition",
    "IndexPolicy",
    "Insert",
    "MatchQuery",
    "MergePolicy",
    "MultiMatchQuery",
    "Patch",
    "PhraseQuery",
    "SnapshotToken",
    "Source",
    "Table",
    "Upsert",
    "__version__",
    "adopt",
    "bounded",
    "bucket",
    "clone",
    "create",
    "day",
    "drop",
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

# Lance, Arrow, NumPy and pandas take most of a second to import. They are imported with the first name
# that needs them, so that `weir --help` answers at once, and a process that reads a token or asks for an
# error class does not wait for a table it does not open. Type checkers and editors read the first branch.
if TYPE_CHECKING:
    from weir.format.snapshot_token import SnapshotToken
    from weir.format.source import Source
    from weir.indexing.definition import IndexDefinition
    from weir.indexing.policy import IndexPolicy
    from weir.merge.policy import MergePolicy
    from weir.rows.operations import Delete, Insert, Patch, Upsert
    from weir.search.text.query import BooleanQuery, BoostQuery, MatchQuery, MultiMatchQuery, PhraseQuery
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
    from weir.snapshots.snapshot import bounded
    from weir.table.engine import Engine
    from weir.table.table import Table, adopt, clone, create, drop, open
else:
    _NAMES = {
        "weir.format.snapshot_token": ["SnapshotToken"],
        "weir.format.source": ["Source"],
        "weir.indexing.definition": ["IndexDefinition"],
        "weir.indexing.policy": ["IndexPolicy"],
        "weir.rows.operations": ["Delete", "Insert", "Patch", "Upsert"],
        "weir.snapshots.snapshot": ["bounded"],
        "weir.search.text.query": [
            *("BooleanQuery", "BoostQuery", "MatchQuery", "MultiMatchQuery", "PhraseQuery"),
        ],
        "weir.merge.policy": ["MergePolicy"],
        "weir.sharding.shard_by": [
            *("bucket", "day", "expression", "hour", "identity", "month", "multi_bucket", "truncate"),
            *("unsharded", "year"),
        ],
        "weir.table.engine": ["Engine"],
        "weir.table.table": ["Table", "adopt", "clone", "create", "drop", "open"],
    }
    _MODULES = {name: module for module, names in _NAMES.items() for name in names}

    def __getattr__(name: str) -> object:
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # Two threads may come here for one name: both import and find the same object.
        value = globals()[name] = getattr(import_module(module), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
