"""Options, as frozen dataclasses: each field with its unit, default and meaning."""

from __future__ import annotations

from dataclasses import dataclass, fields

from weir.errors import OptionError

__all__ = ["WriterOptions"]

_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterOptions:
    """How a writer buffers, batches and flushes.

    Parameters
    ----------
    max_memtable_rows : int
        Rows after which a MemTable is flushed to a generation. Default 100,000.
    max_memtable_bytes : int
        Bytes of Arrow data after which a MemTable is flushed. Default 256 MiB.
    max_frozen_memtables : int
        MemTables of one shard that may wait for their flush. When one more is full, writers wait.
        Default 2.
    max_wal_bytes : int
        Bytes of Arrow data after which waiting writes are no longer gathered into the same WAL
        entry. A single larger write still makes one entry. Default 16 MiB.
    max_wal_delay : float
        Seconds the first of a group of writes may wait for others to join its WAL entry.
        Default 0: no added delay; writes that arrive while another is being written still share
        the next entry.
    backpressure_timeout : float
        Seconds a write waits for a flush to make room before
        :class:`~weir.errors.BackpressureError`. Default 60.
    flush_on_close : bool
        Whether closing the writer flushes what its MemTables hold, so that a merge finds it.
        Without it the rows stay durable in the WAL. Default True.
    """

    max_memtable_rows: int = 100_000
    max_memtable_bytes: int = 256 * _MEBIBYTE
    max_frozen_memtables: int = 2
    max_wal_bytes: int = 16 * _MEBIBYTE
    max_wal_delay: float = 0.0
    backpressure_timeout: float = 60.0
    flush_on_close: bool = True

    def __post_init__(self) -> None:
        """Check every option."""
        for name in ("max_memtable_rows", "max_memtable_bytes", "max_frozen_memtables", "max_wal_bytes"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise OptionError(
                    f"writer option {name} must be a whole number of at least 1, got {value!r}", where=name
                )
        for name in ("max_wal_delay", "backpressure_timeout"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not value >= 0:
                raise OptionError(
                    f"writer option {name} must be a number of seconds of at least 0, got {value!r}",
                    where=name,
                )
        if not isinstance(self.flush_on_close, bool):
            raise OptionError(
                f"writer option flush_on_close must be True or False, got {self.flush_on_close!r}",
                where="flush_on_close",
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
