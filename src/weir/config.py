"""Options, as frozen dataclasses: each field with its unit, default and meaning; and defaults of services."""

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
        Whether to claim a shard though another writer holds a live lease on it, which fences that
        writer. Otherwise such a claim fails with :class:`~weir.errors.LeaseHeldError`. Default False.
    lease_ttl : float
        Seconds a lease on a shard lasts from its last renewal: how long the shards of a writer that
        has vanished stay closed to others, unless they take over. From 0.1 to 86,400. Default 300.
    max_memtable_rows : int
        Rows that a MemTable has at most, unless a single call has more: it is flushed to a generation when
        it has as many, or would get more. Default 100,000, which is as many as the released library replays
        of a generation when it takes a shard over.
    max_memtable_bytes : int
        Bytes of Arrow data after which a MemTable is flushed. Default 256 MiB.
    max_memtable_entries : int
        Log entries, or batches in them, that a MemTable has at most: as many as somebody may have to read,
        one round trip each, who claims the shard or reads it for the first time. Default 8,000, which is as
        many as the released library replays of a generation.
    max_memtable_age : float
        Seconds after which a MemTable is flushed, from its first row, however few there are: rows that come
        slowly would otherwise never be merged. Recorded with a table by ``weir.create(max_memtable_age=)``.
        ``math.inf`` for never. Default 60.
    max_frozen_memtables : int
        MemTables of one shard that may wait for their flush. When one more is full, writers wait.
        Default 2.
    max_unflushed_bytes : int
        Bytes of memory that rows may take before they are flushed, in all shards of the writer:
        rows on their way to the WAL, in MemTables, and what surrounds them. From half of it the
        largest MemTable is flushed early; near it writes are slowed down, and at it they wait.
        A call with more rows than that is accepted alone. Default 1 GiB.
    max_unmerged_generations : int
        Generations of one shard that may wait for a merge. Near it writes to the shard are slowed
        down, and at it they wait. Default 1,000.
    max_wal_bytes : int
        Bytes of Arrow data after which waiting writes are no longer gathered into the same WAL
        entry. A single larger write still makes one entry. Default 16 MiB.
    max_wal_delay : float
        Seconds the first of a group of writes may wait for others to join its WAL entry.
        Default 0: no added delay; writes that arrive while another is being written still share
        the next entry.
    backpressure_timeout : float
        Seconds a write waits for flushes, or a merge, to make room before
        :class:`~weir.errors.BackpressureError`. Default 60.
    flush_on_close : bool
        Whether closing the writer flushes what its MemTables hold, so that a merge finds it.
        Without it the rows stay durable in the WAL. Default True.
    immutable : bool
        The promise that no row ever changes its value of the columns that the table is sharded by, for a
        table that is sharded by a column outside its key and was made without it, as the library makes
        them. Without the promise such a table is not written. Default False.
    holder : str, optional
        Name of who holds the leases, for a writer of which there is one at a time: started again after a
        crash, on whatever machine, it takes the leases of its former self over at once. Of two that are at
        work under one name, the later fences the earlier. Default: a name of its own for every writer.
    cluster_by : tuple of str, default ()
        Columns by which the rows of a generation are laid out: rows that are asked for together, such as
        those of one kind, are then read together. It changes no answer, and merges keep it. A table that is
        sorted has its own order.
    address : str, optional
        Where others reach this process, such as ``"http://10.0.0.7:8080"``: whoever finds a shard held is
        told it with the error. Default: only machine and process are told.
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
