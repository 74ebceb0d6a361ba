"""Puts simulated threads, time, randomness and Lance under Weir's own modules, and takes them away again.

Whatever a module of Weir has imported under these names is replaced in that module alone; everything
else of it runs as it is. Other threads of the process, as those that flush by age what an earlier test has
written, go on with the real ones: on simulated time they would wait for hours when the simulation is over.
"""

from __future__ import annotations

import concurrent.futures
import datetime
import gc
import logging
import random
import secrets
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import greenlet
import lance
import lance.optimize
from lance.dataset import serialize_row_addrs
from lance.file import LanceFileReader, LanceFileWriter
from tests.simulation import compaction, library, once, primitives, process_wide, released, world

import weir.base.column_births
import weir.base.column_marks
import weir.base.deleted_rows
import weir.base.durability
import weir.base.file_checksums
import weir.base.index_files
import weir.base.index_upkeep
import weir.base.key_index
import weir.base.key_index_files
import weir.base.manifest
import weir.base.publish
import weir.base.published
import weir.base.row_commit
import weir.base.torn_versions
import weir.base.whole_files
import weir.maintenance.compact
import weir.merge.merged_keys
import weir.table.table  # What is imported later would not be replaced.
import weir.write.flush.generation_writer
import weir.write.lease.lease_owner
import weir.write.lease.lease_terms
import weir.write.lease.released_leases
from weir.base import dataset_fields
from weir.format import (
    checked_json,
    feed_consumer,
    first_index_details,
    garbage_marks,
    generation_catalog,
    layout,
    lease,
    pk_index,
    shard_manifest,
    snapshot_pin,
    table_manifest,
    version_hint,
    wal_entry,
)

__all__ = ["substituted"]

_own_thread = threading.get_ident

_STAYS_REAL = (
    "weir.engine.cache",
    "weir.engine.context",
    "weir.engine.executors",
    "weir.engine.metrics",
    "weir.engine.registry",
    "weir.engine.failpoint",
    "weir.engine.logs",
    "weir.cli",
    "weir.demo",
    "weir.storage",
)

_DECODERS: tuple[Callable[..., Any], ...] = (
    wal_entry.decode_header,
    garbage_marks.decode,
    feed_consumer.decode,
    snapshot_pin.decode,
    generation_catalog.decode,
)
_PATHS: tuple[Callable[..., Any], ...] = (
    layout.shard_directory,
    layout.wal_directory,
    layout.wal_path,
    layout.manifest_directory,
    layout.manifest_path,
    layout.version_hint_path,
    layout.lease_path,
    layout.generation_path,
    layout.parse_wal_name,
    layout.parse_manifest_name,
    layout.parse_generation_name,
    layout.parse_reversed_name,
)


class _CurrentLibrary:
    """Passes on to the library of the simulation that runs."""

    def __getattr__(self, name: str) -> Any:
        return getattr(library.FileWriter.library, name)


class _ByThread:
    """Passes on to a stand-in on the thread of the simulation, to what it stands in for on all others."""

    def __init__(self, thread: int, real: Any, stand_in: Any) -> None:
        self._thread, self._real, self._stand_in = thread, real, stand_in

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stand_in if _own_thread() == self._thread else self._real, name)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        chosen = self._stand_in if _own_thread() == self._thread else self._real
        return chosen(*args, **keywords)


def _done_once() -> list[tuple[Any, Any]]:
    """Return what is replaced by what does the same, only faster, on every thread."""
    return [
        *((decode, once.decoded_once(decode)) for decode in _DECODERS),
        *((path, lru_cache(maxsize=4096)(path)) for path in _PATHS),
        (wal_entry.decode, once.decode_entry),
        (wal_entry.encode, once.encode_entry),
        (shard_manifest.decode, once.decode_manifest),
        (lease.decode, once.decode_lease),
        (lease.encode, once.encode_lease),
        (checked_json.encode, once.encode_json),
        (pk_index.build, once.key_index),
        (version_hint.decode, once.hint_decoded),
        (version_hint.encode, once.hint_encoded),
    ]


def _replacements() -> list[tuple[Any, Any]]:
    """Return what is replaced, and by what."""
    return [
        (shard_manifest.encode, released.encode_manifest),
        (threading, primitives.SimulatedThreading),
        (time, primitives.SimulatedTime),
        (secrets, primitives.SimulatedSecrets),
        (random, primitives.SimulatedRandom),
        (uuid.uuid4, primitives.simulated_uuid4),
        (concurrent.futures.ThreadPoolExecutor, primitives.SimulatedExecutor),
        (lance, _CurrentLibrary()),
        (lance.CompactedSsTable, library.Mark),
        (serialize_row_addrs, library.serialize_row_addrs),
        (LanceFileWriter, library.FileWriter),
        (LanceFileReader, library.FileReader),
        (dataset_fields.row_schema, once.row_schema),
        (dataset_fields.marks_of, once.marks_of),
        (dataset_fields.generation_schema, once.generation_schema),
        (weir.base.durability.committing, library.committing),
        (weir.base.durability.make_durable, library.make_durable),
        (lance.optimize.Compaction, compaction.Compaction),
        (lance.optimize.CompactionOptions, compaction.CompactionOptions),
        (weir.base.index_upkeep.record_catchup, library.record_catchup),
        (weir.base.row_commit.fragments_of, library.fragments_of),
        (weir.base.row_commit.fragment_sizes, library.fragment_sizes),
        (weir.base.row_commit.rows_by_address, library.rows_by_address),
        (weir.base.row_commit.write_fragment_files, library.write_fragment_files),
        (weir.base.row_commit.without_rows, library.without_rows),
        (weir.base.row_commit.commit_rows, library.commit_rows),
        (weir.write.flush.generation_writer._committed_beside, library.committed_beside),
        (weir.base.whole_files.refuse_torn, library.refuse_torn),
        (weir.base.whole_files.refuse_torn_build, library.refuse_torn),
        (weir.base.manifest.read_manifest, library.read_manifest),
        (weir.base.file_checksums.refuse_damaged_version, library.refuse_damaged_version),
        (weir.base.deleted_rows.refuse_damaged_deletion_files, library.refuse_damaged_deletion_files),
        (weir.base.key_index_files.refuse_damaged_key_index, library.refuse_damaged_key_index),
        (weir.base.index_files.refuse_damaged_indexes, library.refuse_damaged_indexes),
        (weir.base.column_births.births_of_columns, library.births_of_columns),
        (weir.base.column_marks.mark_columns, library.mark_columns),
        (weir.base.publish.publish_details, library.publish_details),
        (weir.base.torn_versions.what_is_torn, library.what_is_torn),
        (weir.base.torn_versions._move, library.move_aside),
        (weir.base.manifest.TableManifest, library.manifest_that_was_read),
        (table_manifest.with_version, library.with_version),
        (table_manifest.decode_files, library.decode_files),
        (table_manifest.head_message, library.head_message),
        (table_manifest.made_by_one_transaction, library.made_by_one_transaction),
        (first_index_details.is_first_form, library.is_first_form),
        (weir.base.published._to_lance_bytes, library.to_lance_bytes),
        (weir.base.published._from_lance_bytes, library.from_lance_bytes),
        (weir.write.lease.lease_owner.is_certainly_dead, world.is_certainly_dead),
        (weir.base.key_index.extend_key_index, library.extend_key_index),
        (weir.base.key_index.build_missing_segments, library.build_missing_segments),
        (
            weir.write.lease.released_leases.released_leases,
            process_wide.OfProcess(weir.write.lease.released_leases.ReleasedLeases),
        ),
        (
            weir.write.lease.lease_terms._sightings,
            process_wide.OfProcess(weir.write.lease.lease_terms._Sightings),
        ),
    ]


@contextmanager
def substituted(*, alone: bool = False) -> Iterator[None]:
    """Run Weir on simulated threads, time, randomness and Lance for the length of a ``with`` block.

    Parameters
    ----------
    alone : bool
        Whether no other thread of the process runs Weir: then nobody asks at every call which one it is.
    """
    thread = threading.get_ident()
    once.forget()
    replacements = {id(real): stand_in for real, stand_in in _done_once()}
    replacements |= {
        id(real): stand_in if alone else _ByThread(thread, real, stand_in)
        for real, stand_in in _replacements()
    }
    # A class, of which there are instances: which clock it asks is decided where it asks.
    replacements[id(datetime.datetime)] = primitives.SimulatedDatetime
    keys = vars(weir.merge.merged_keys)
    changed: list[tuple[dict[str, Any], str, Any]] = [(keys, "_INLINE_BYTES", keys["_INLINE_BYTES"])]
    # There are few keys, and they are to be lost.
    keys["_INLINE_BYTES"] = 0
    logger = logging.getLogger("weir")
    level = logger.level
    unraisable = sys.unraisablehook
    # A cyclic collection could end an abandoned generator, whose code may take a simulated lock, at a
    # moment that no seed decides, or on a thread that no task may run on. Simulations collect in between,
    # and what was there before them stays frozen: to search all that tests have imported takes long.
    gc.collect()
    gc.freeze()
    gc.disable()
    sys.unraisablehook = lambda raised: None if _is_death(raised) else unraisable(raised)
    logger.setLevel(logging.CRITICAL)
    try:
        for module_name, module in list(sys.modules.items()):
            if not module_name.startswith("weir") or module_name.startswith(_STAYS_REAL):
                continue
            names = vars(module)
            for name, value in list(names.items()):
                found = replacements.get(id(value))
                if found is not None:
                    changed.append((names, name, value))
                    names[name] = found
        yield
    finally:
        for names, name, value in reversed(changed):
            names[name] = value
        logger.setLevel(level)
        sys.unraisablehook = unraisable
        gc.enable()


def _is_death(raised: sys.UnraisableHookArgs) -> bool:
    """Whether it is the end of a simulated process that came while a generator was being closed."""
    return isinstance(raised.exc_value, greenlet.GreenletExit)
