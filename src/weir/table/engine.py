"""An engine: opens tables that share its caches, its threads and its limits."""

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

    :func:`weir.open` and its kin use the engine of the process, with the limits that are the defaults here.
    A service makes an engine of its own, with limits of its own, and opens its tables with it.

    Parameters
    ----------
    memory : int, optional
        Bytes for the read cache and for unflushed rows together, half for each. Default 2 GiB.
    read_cache_bytes : int, optional
        Bytes that everything takes that was read and is kept. Default: half of ``memory``.
    unflushed_bytes : int, optional
        Bytes that rows of all writers together may take before they are flushed. Default: half of ``memory``.
    threads : int, optional
        How many threads there are at most for each kind of work: requests to a store, sources of a read,
        waiting for appends, flushes. They start when they are needed. Default: as many as pay, under 50
        in all.
    maintenance : {"auto", "off"} or UpkeepPolicy, optional
        Whether tables look after themselves: ``"auto"``, or a policy, has those that are written through the
        engine merged, compacted and collected in the background, their indexes caught up, and what writers
        that died have left in logs flushed; one process at a time for each table. Default: what the
        environment variable ``WEIR_MAINTENANCE`` says, or ``"auto"``.

    Raises
    ------
    OptionError
        If a limit is no whole number of at least 1, or ``maintenance`` is none of these.

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
        """Open a table that shares what the engine has. Options as for :func:`weir.open`."""
        return open(uri, engine=self, **options)

    def create(self, uri: str | Path, schema: pa.Schema, **options: Any) -> Table:
        """Create a table that shares what the engine has. Options as for :func:`weir.create`."""
        return create(uri, schema, engine=self, **options)

    def adopt(self, uri: str | Path, **options: Any) -> Table:
        """Turn a Lance dataset into a table that shares it too. Options as for :func:`weir.adopt`."""
        return adopt(uri, engine=self, **options)

    def close(self) -> None:
        """End the upkeep and the threads, and let go of what is cached. Idempotent.

        Tables of the engine can be read on, and start threads again; close their writers before.
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
