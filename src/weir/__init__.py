"""Weir: streaming upserts and deletes into Lance tables.

Upserts and deletes are durable when acknowledged, visible to strong readers at once, and merged into
the table by jobs that run beside the writers. See :func:`weir.create` for an example.
"""

from __future__ import annotations

from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING

import weir.engine.library_log  # noqa: F401  # before the library is imported
from weir import errors

__version__ = "0.1.0"

__all__ = [
    "BooleanQuery",
    "BoostQuery",
    "CatchUpReport",
    "ChangeBatch",
    "ChangeFeed",
    "CompactReport",
    "Consistency",
    "Delete",
    "Description",
    "DropReport",
    "Engine",
    "ExistingIndex",
    "ExpireReport",
    "GarbageReport",
    "IndexDefinition",
    "IndexPolicy",
    "Insert",
    "MaintenanceReport",
    "MatchQuery",
    "MergeEngine",
    "MergePolicy",
    "MergeReport",
    "MultiMatchQuery",
    "Patch",
    "PhraseQuery",
    "RecoverReport",
    "RepairReport",
    "Scan",
    "Search",
    "ShardBy",
    "ShardReport",
    "SnapshotToken",
    "Source",
    "SqlQuery",
    "Table",
    "TableIndexes",
    "TableInspection",
    "TableMaintenance",
    "TableStatus",
    "TableTags",
    "TableWriter",
    "Tag",
    "UpgradeReport",
    "UpkeepPolicy",
    "Upsert",
    "VerifyReport",
    "WriteResult",
    "__version__",
    "adopt",
    "bounded",
    "bucket",
    "clone",
    "create",
    "day",
    "drop",
    "errors",
    "events",
    "expression",
    "hour",
    "identity",
    "month",
    "multi_bucket",
    "namespaces",
    "open",
    "sketches",
    "transforms",
    "truncate",
    "unsharded",
    "upgrade",
    "year",
]

# Lance, Arrow, NumPy and pandas take most of a second to import. They are imported with the first name
# that needs them, so that `weir --help` answers at once, and a process that reads a token or asks for an
# error class does not wait for a table it does not open. Type checkers and editors read the first branch.
if TYPE_CHECKING:
    from weir import events, namespaces, sketches, transforms
    from weir.changes.feed import ChangeBatch, ChangeFeed
    from weir.first_index.upgrade import UpgradeReport
    from weir.format.merge_engine import MergeEngine
    from weir.format.snapshot_token import SnapshotToken
    from weir.format.source import Source
    from weir.format.tag import Tag
    from weir.indexing.definition import IndexDefinition
    from weir.indexing.describe import ExistingIndex
    from weir.indexing.policy import IndexPolicy
    from weir.maintenance.catch_up import CatchUpReport
    from weir.maintenance.compact import CompactReport
    from weir.maintenance.drop import DropReport
    from weir.maintenance.expire import ExpireReport
    from weir.maintenance.garbage.report import GarbageReport
    from weir.maintenance.inspection.description import Description
    from weir.maintenance.maintain import MaintenanceReport
    from weir.maintenance.recover import RecoverReport
    from weir.maintenance.repair import RepairReport
    from weir.maintenance.status import ShardReport, TableStatus
    from weir.maintenance.upkeep_policy import UpkeepPolicy
    from weir.maintenance.verify import VerifyReport
    from weir.merge.policy import MergePolicy
    from weir.merge.service import MergeReport
    from weir.read.scan import Scan
    from weir.read.sql import SqlQuery
    from weir.rows.operations import Delete, Insert, Patch, Upsert
    from weir.search.search import Search
    from weir.search.text.query import BooleanQuery, BoostQuery, MatchQuery, MultiMatchQuery, PhraseQuery
    from weir.sharding.shard_by import (
        ShardBy,
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
    from weir.snapshots.snapshot import Consistency, bounded
    from weir.table.engine import Engine
    from weir.table.indexes import TableIndexes
    from weir.table.inspection import TableInspection
    from weir.table.lifecycle import adopt, clone, create, drop, open, upgrade
    from weir.table.maintenance import TableMaintenance
    from weir.table.table import Table
    from weir.table.tags import TableTags
    from weir.write.table_writer import TableWriter
    from weir.write.write_result import WriteResult
else:
    _NAMES = {
        "weir.changes.feed": ["ChangeBatch", "ChangeFeed"],
        "weir.format.merge_engine": ["MergeEngine"],
        "weir.first_index.upgrade": ["UpgradeReport"],
        "weir.format.snapshot_token": ["SnapshotToken"],
        "weir.format.tag": ["Tag"],
        "weir.format.source": ["Source"],
        "weir.indexing.definition": ["IndexDefinition"],
        "weir.indexing.describe": ["ExistingIndex"],
        "weir.indexing.policy": ["IndexPolicy"],
        "weir.maintenance.upkeep_policy": ["UpkeepPolicy"],
        "weir.rows.operations": ["Delete", "Insert", "Patch", "Upsert"],
        "weir.maintenance.catch_up": ["CatchUpReport"],
        "weir.maintenance.compact": ["CompactReport"],
        "weir.maintenance.drop": ["DropReport"],
        "weir.maintenance.garbage.report": ["GarbageReport"],
        "weir.maintenance.inspection.description": ["Description"],
        "weir.maintenance.expire": ["ExpireReport"],
        "weir.maintenance.maintain": ["MaintenanceReport"],
        "weir.maintenance.recover": ["RecoverReport"],
        "weir.maintenance.repair": ["RepairReport"],
        "weir.maintenance.status": ["ShardReport", "TableStatus"],
        "weir.maintenance.verify": ["VerifyReport"],
        "weir.merge.policy": ["MergePolicy"],
        "weir.merge.service": ["MergeReport"],
        "weir.read.scan": ["Scan"],
        "weir.read.sql": ["SqlQuery"],
        "weir.search.search": ["Search"],
        "weir.search.text.query": [
            "BooleanQuery",
            "BoostQuery",
            "MatchQuery",
            "MultiMatchQuery",
            "PhraseQuery",
        ],
        "weir.sharding.shard_by": [
            "ShardBy",
            "bucket",
            "day",
            "expression",
            "hour",
            "identity",
            "month",
            "multi_bucket",
            "truncate",
            "unsharded",
            "year",
        ],
        "weir.snapshots.snapshot": ["Consistency", "bounded"],
        "weir.table.engine": ["Engine"],
        "weir.table.indexes": ["TableIndexes"],
        "weir.table.inspection": ["TableInspection"],
        "weir.table.tags": ["TableTags"],
        "weir.table.lifecycle": ["adopt", "clone", "create", "drop", "open", "upgrade"],
        "weir.table.maintenance": ["TableMaintenance"],
        "weir.table.table": ["Table"],
        "weir.write.table_writer": ["TableWriter"],
        "weir.write.write_result": ["WriteResult"],
    }
    # Packages that are reached as attributes; importing one of them imports what it stands on.
    _SUBMODULES = {"events", "namespaces", "sketches", "spark", "transforms"}
    _MODULES = {name: module for module, names in _NAMES.items() for name in names}
    _importing = RLock()

    def __getattr__(name: str) -> object:
        if name in _SUBMODULES:
            return import_module(f"weir.{name}")
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # Modules of libraries that import each other cannot be imported by two threads from two sides.
        # What is imported here never comes back for a name of this package, so that nobody waits for ever.
        with _importing:
            value = globals()[name] = getattr(import_module(module), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
