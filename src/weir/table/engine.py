"""The engine: opens tables that share its caches, threads and limits."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from weir.engine.context import (
    DEFAULT_READ_CACHE_BYTES,
    DEFAULT_UNFLUSHED_BYTES,
    EngineContext,
)
from weir.engine.executors import Executors
from weir.errors import OptionError
from weir.maintenance.upkeep_policy import UpkeepPolicy, chosen_policy
from weir.table.lifecycle import adopt, create, open
from weir.table.table import Table
from weir.table.upkeep import Upkeep

__all__ = ["Engine"]


class Engine(EngineContext):
    """What the tables of one process share: a read cache, memory for unflushed rows, threads, metrics.

    :func:`weir.open` and the other functions use the engine of the process, with the default limits below. A
    service creates its own engine with its own limits, and opens its tables with it.

    Parameters
    ----------
    memory : int, optional
        Bytes for the read cache and for unflushed rows together, half for each. Default 2 GiB.
    read_cache_bytes : int, optional
        Bytes for the read cache. Default: half of ``memory``.
    unflushed_bytes : int, optional
        Bytes for unflushed rows of all writers together. Default: half of ``memory``.
    threads : int, optional
        Most threads for each kind of work: requests to a store, sources of a read, waiting for appends,
        flushes. They start when needed. Default: as many as useful, under 50 in all.
    maintenance : {"auto", "off"} or UpkeepPolicy, optional
        Whether tables maintain themselves: with ``"auto"`` or a policy, tables written through the engine are
        merged, compacted, indexed and garbage-collected in the background, and what dead writers left in logs
        is flushed; one process at a time does this for each table. Default: what the environment variable
        ``WEIR_MAINTENANCE`` says, or ``"auto"``.

    Raises
    ------
    OptionError
        If a limit is not an integer of at least 1, or ``maintenance`` is not one of these.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, weir
    >>> schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    >>> with weir.Engine(memory=256 << 20) as engine:
    ...     table = engine.create(tempfile.mkdtemp() + "/people", schema, primary_key="id")
    ...     with table.writer() as writer:
    ...         _ = writer.upsert([{"id": 1, "name": "Ada"}])
    ...     rows = table.scan().to_table().to_pylist()
    >>> rows, engine.metrics.storage_requests.value("put_if_absent") > 0
    ([{'id': 1, 'name': 'Ada'}], True)
    """

    def __init__(
        self,
        *,
        memory: int | None = None,
        read_cache_bytes: int | None = None,
        unflushed_bytes: int | None = None,
        threads: int | None = None,
        maintenance: UpkeepPolicy | str | None = None,
    ) -> None:
        limits = {
            "memory": memory,
            "read_cache_bytes": read_cache_bytes,
            "unflushed_bytes": unflushed_bytes,
            "threads": threads,
        }
        for name, limit in limits.items():
            if limit is not None:
                _check(name, limit)
        policy = chosen_policy(maintenance)
        half = None if memory is None else max(memory // 2, 1)
        super().__init__(
            read_cache_bytes=read_cache_bytes or half or DEFAULT_READ_CACHE_BYTES,
            unflushed_bytes=unflushed_bytes or half or DEFAULT_UNFLUSHED_BYTES,
            executors=Executors(threads),
        )
        self._upkeep = None if policy is None else Upkeep(self, policy)

    def open(self, uri: str | Path, **options: Any) -> Table:
        """Open a table on this engine. Options as for :func:`weir.open`."""
        return open(uri, engine=self, **options)

    def create(self, uri: str | Path, schema: pa.Schema, **options: Any) -> Table:
        """Create a table on this engine. Options as for :func:`weir.create`."""
        return create(uri, schema, engine=self, **options)

    def adopt(self, uri: str | Path, **options: Any) -> Table:
        """Turn a Lance dataset into a table on this engine. Options as for :func:`weir.adopt`."""
        return adopt(uri, engine=self, **options)

    def close(self) -> None:
        """Stop upkeep and threads, and drop the cache. Idempotent.

        Tables of the engine remain readable, and start threads again; close their writers first.
        """
        if self._upkeep is not None:
            self._upkeep.stop()
        self.executors.shutdown()
        self.cache.clear()

    def __enter__(self) -> Engine:
        """Return the engine itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the engine."""
        self.close()


def _check(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise OptionError(f"{name} must be a whole number of at least 1, got {value!r}", where=name)
