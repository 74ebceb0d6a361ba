"""Options, as frozen dataclasses: each field with its unit, default and meaning; and service defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from weir.errors import OptionError

__all__ = ["DEFAULT_ROWS_PER_FRAGMENT", "RETRAIN_IMBALANCE_THRESHOLD", "WriterOptions"]

DEFAULT_ROWS_PER_FRAGMENT = 1024 * 1024
"""Rows that compaction makes fragments of."""
RETRAIN_IMBALANCE_THRESHOLD = 5.0
"""How many times larger than the smallest filled partition the largest may be before it learns again."""

_MEBIBYTE = 1024 * 1024

_COUNTS = (
    "max_memtable_rows",
    "max_memtable_bytes",
    "max_memtable_entries",
    "max_frozen_memtables",
    "max_unflushed_bytes",
    "max_unmerged_generations",
    "max_wal_bytes",
)
# The least and the most that make sense: a shorter lease would be over before it could be renewed, a
# longer one is no lease.
_SECONDS = {
    "lease_ttl": (0.1, 86_400.0),
    "max_memtable_age": (0.05, math.inf),
    "max_wal_delay": (0.0, math.inf),
    "backpressure_timeout": (0.0, math.inf),
}
_SWITCHES = ("takeover", "flush_on_close", "immutable")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterOptions:
    """How a writer claims shards, and how it buffers, batches and flushes.

    Parameters
    ----------
    takeover : bool
        Whether to claim a shard even if another writer holds a live lease on it, which fences that writer.
        Otherwise such a claim fails with :class:`~weir.errors.LeaseHeldError`. Default False.
    lease_ttl : float
        Seconds a lease on a shard lasts from its last renewal, and thus how long the shards of a vanished
        writer stay closed to others, unless they take over. From 0.1 to 86,400. Default 300.
    max_memtable_rows : int
        Most rows of a MemTable, unless a single call has more: a MemTable is flushed to a generation when it
        is full or the next write would exceed the limit. Default 100,000, which is also the most that the
        released library replays when it takes over a shard.
    max_memtable_bytes : int
        Bytes of Arrow data after which a MemTable is flushed. Default 256 MiB.
    max_memtable_entries : int
        Most log entries, or batches in them, of a MemTable. A process that claims the shard, or reads it for
        the first time, may have to read this many, with one round trip each. Default 8,000, which is also the
        most that the released library replays.
    max_memtable_age : float
        Seconds after its first row at which a MemTable is flushed, however few rows it has: rows that arrive
        slowly would otherwise never be merged. ``weir.create(max_memtable_age=)`` records it with a table.
        ``math.inf`` for never. Default 60.
    max_frozen_memtables : int
        MemTables of one shard that may wait for their flush. When another one is full, writers wait. Default
        2.
    max_unflushed_bytes : int
        Bytes of memory for unflushed rows in all shards of the writer: rows on their way to the WAL, rows in
        MemTables, and overhead. From half the limit on, the largest MemTable is flushed early; near the limit
        writes are slowed down, and at it they wait. A single call that exceeds it is accepted alone. Default
        1 GiB.
    max_unmerged_generations : int
        Generations of one shard that may wait for a merge. Near the limit writes to the shard are slowed
        down, and at it they wait. Default 1,000.
    max_wal_bytes : int
        Bytes of Arrow data after which waiting writes no longer join the same WAL entry. A single larger
        write still makes one entry. Default 16 MiB.
    max_wal_delay : float
        Seconds the first of a group of writes may wait for others to join its WAL entry. Default 0: no added
        delay; writes that arrive while another entry is being written still share the next one.
    backpressure_timeout : float
        Seconds a write waits for flushes or a merge to make room before
        :class:`~weir.errors.BackpressureError`. Default 60.
    flush_on_close : bool
        Whether closing the writer flushes its MemTables, so that a merge finds the rows. Otherwise the rows
        stay durable in the WAL. Default True.
    immutable : bool
        The promise that no row ever changes its values of the columns the table is sharded by. Needed to
        write a table that is sharded by a column outside its key and was created without the promise, as the
        library creates them. Default False.
    holder : str, optional
        Name of the lease holder, for a writer that runs once at a time: restarted after a crash, on whatever
        machine, it takes over the leases of its predecessor at once. If two writers run under one name, the
        later fences the earlier. Default: a unique name for every writer.
    cluster_by : tuple of str, default ()
        Columns by which the rows of a generation are clustered, so that rows queried together are stored
        together. Results do not change, and merges keep the order. A sorted table has its own order.
    address : str, optional
        The address of this process, such as ``"http://10.0.0.7:8080"``: the error that other writers get for
        a held shard includes it. Default: the error names only machine and process.
    """

    takeover: bool = False
    lease_ttl: float = 300.0
    max_memtable_rows: int = 100_000
    max_memtable_bytes: int = 256 * _MEBIBYTE
    max_memtable_entries: int = 8_000
    max_memtable_age: float = 60.0
    max_frozen_memtables: int = 2
    max_unflushed_bytes: int = 1024 * _MEBIBYTE
    max_unmerged_generations: int = 1000
    max_wal_bytes: int = 16 * _MEBIBYTE
    max_wal_delay: float = 0.0
    backpressure_timeout: float = 60.0
    flush_on_close: bool = True
    immutable: bool = False
    holder: str | None = None
    cluster_by: tuple[str, ...] = ()
    address: str | None = None

    def __post_init__(self) -> None:
        """Check every option."""
        for name in _COUNTS:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise OptionError(
                    f"writer option {name} must be a whole number of at least 1, got {value!r}", where=name
                )
        for name, (least, most) in _SECONDS.items():
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
                bounds = f"at least {least:g}" + ("" if most == math.inf else f" and at most {most:,g}")
                raise OptionError(
                    f"writer option {name} must be a number of seconds of {bounds}, got {value!r}",
                    where=name,
                )
        for name in _SWITCHES:
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise OptionError(f"writer option {name} must be True or False, got {value!r}", where=name)

        for name in ("holder", "address"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise OptionError(f"writer option {name} must be a text, got {value!r}", where=name)
        if not isinstance(self.cluster_by, tuple) or not all(isinstance(one, str) for one in self.cluster_by):
            raise OptionError(
                f"writer option cluster_by must be a tuple of column names, got {self.cluster_by!r}",
                where="cluster_by",
            )

    @classmethod
    def from_keywords(cls, **options: object) -> WriterOptions:
        """Build from keyword arguments, naming any that do not exist.

        Raises
        ------
        OptionError
            If a name is unknown or a value is out of range.

        Examples
        --------
        >>> WriterOptions.from_keywords(max_memtable_rows=10).max_memtable_rows
        10
        """
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise OptionError(
                f"unknown writer option {unknown[0]!r}",
                hint=f"The options are {', '.join(known)}",
            )
        return cls(**options)  # type: ignore[arg-type]
