"""Puts simulated threads, time, randomness and Lance under Weir's own modules, and takes them away again.

Whatever a module of Weir has imported under these names is replaced in that module alone; everything
else of it runs as it is.
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
from lance.dataset import serialize_row_addrs
from lance.file import LanceFileWriter
from tests.simulation import library, once, primitives, process_wide, released, world

import weir.base.key_index
import weir.base.manifest
import weir.base.publish
import weir.base.published
import weir.base.torn_versions
import weir.table.table  # What is imported later would not be replaced.
import weir.write.lease.lease_owner
import weir.write.lease.lease_terms
import weir.write.lease.released_leases
from weir.format import (
    checked_json,
    feed_consumer,
    garbage_marks,
    generation_catalog,
    layout,
    lease,
    pk_index,
    shard_manifest,
    snapshot_pin,
    wal_entry,
)

__all__ = ["substituted"]

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
    wal_entry.decode,
    wal_entry.decode_header,
    shard_manifest.decode,
    lease.decode,
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


def _replacements() -> list[tuple[Any, Any]]:
    """Return what is replaced, and by what."""
    return [
        *((decode, once.decoded_once(decode)) for decode in _DECODERS),
        *((path, lru_cache(maxsize=4096)(path)) for path in _PATHS),
        (checked_json.encode, once.encode_json),
        (pk_index.build, once.key_index),
        (shard_manifest.encode, released.encode_manifest),
        (threading, primitives.SimulatedThreading),
        (time, primitives.SimulatedTime),
        (secrets, primitives.SimulatedSecrets),
        (random, primitives.SimulatedRandom),
        (uuid.uuid4, primitives.simulated_uuid4),
        (datetime.datetime, primitives.SimulatedDatetime),
        (concurrent.futures.ThreadPoolExecutor, primitives.SimulatedExecutor),
        (lance, _CurrentLibrary()),
        (lance.CompactedSsTable, library.Mark),
        (serialize_row_addrs, library.serialize_row_addrs),
        (LanceFileWriter, library.FileWriter),
        (weir.base.manifest.read_manifest, library.read_manifest),
        (weir.base.publish.publish_details, library.publish_details),
        (weir.base.torn_versions.what_is_torn, library.what_is_torn),
        (weir.base.published._to_lance_bytes, library.to_lance_bytes),
        (weir.base.published._from_lance_bytes, library.from_lance_bytes),
        (weir.write.lease.lease_owner.is_certainly_dead, world.is_certainly_dead),
        (weir.base.key_index.extend_key_index, library.extend_key_index),
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
def substituted() -> Iterator[None]:
    """Run Weir on simulated threads, time, randomness and Lance for the length of a ``with`` block."""
    replacements = {id(real): (real, stand_in) for real, stand_in in _replacements()}
    changed: list[tuple[dict[str, Any], str, Any]] = []
    logger = logging.getLogger("weir")
    level = logger.level
    unraisable = sys.unraisablehook
    # A cyclic collection could end an abandoned generator, whose code may take a simulated lock, at a
    # moment that no seed decides, or on a thread that no task may run on. Simulations collect in between.
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
                    names[name] = found[1]
        yield
    finally:
        for names, name, value in reversed(changed):
            names[name] = value
        logger.setLevel(level)
        sys.unraisablehook = unraisable
        gc.enable()
        gc.unfreeze()


def _is_death(raised: sys.UnraisableHookArgs) -> bool:
    """Whether it is the end of a simulated process that came while a generator was being closed."""
    return isinstance(raised.exc_value, greenlet.GreenletExit)
