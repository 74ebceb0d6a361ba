"""The writer options recorded with a table, as far as Weir has the same ones.

Lance MemWAL index details, ``writer_config_defaults``: the released library records its own options there
when it sets a table up. Those whose meaning Weir shares are the defaults of its writers too:

================================  ========================  ==========================================
recorded                          option of Weir            meaning
================================  ========================  ==========================================
``max_memtable_rows``             ``max_memtable_rows``     rows of a MemTable
``max_memtable_batches``          ``max_memtable_entries``  entries, or batches in them, of a MemTable
``max_memtable_size``             ``max_memtable_bytes``    bytes after which a MemTable is flushed
``max_unflushed_memtable_bytes``  ``max_unflushed_bytes``   bytes at which writes wait for flushes
``max_wal_buffer_size``           ``max_wal_bytes``         bytes after which a log entry is written
================================  ========================  ==========================================

Beside them Weir records ``weir.max_memtable_age``, the seconds after which a MemTable is flushed.

The others have nothing to set: ``max_wal_flush_interval_ms`` is the longest that a write may wait for its log
entry, and Weir lets none wait; ``durable_write`` is what every write of Weir is; the rest is about how the
library works inside. Everything recorded is kept.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from weir.errors import OptionError

__all__ = ["MAX_MEMTABLE_AGE", "recorded_options"]

MAX_MEMTABLE_AGE = "weir.max_memtable_age"
"""Key under which a table's own ``max_memtable_age`` is recorded."""

_OPTIONS = {
    "max_memtable_rows": "max_memtable_rows",
    "max_memtable_batches": "max_memtable_entries",
    "max_memtable_size": "max_memtable_bytes",
    "max_unflushed_memtable_bytes": "max_unflushed_bytes",
    "max_wal_buffer_size": "max_wal_bytes",
}


def recorded_options(
    recorded: Mapping[str, str], *, where: str, given: Container[str] = ()
) -> dict[str, float]:
    """Return the options of :class:`weir.config.WriterOptions` that are recorded with a table.

    Parameters
    ----------
    recorded : mapping of str to str
        The writer defaults of the MemWAL index.
    where : str
        The table, for the error.
    given : container of str, default ()
        Options set by the caller, which override the recorded ones.

    Raises
    ------
    OptionError
        A value is not a whole number of at least 1, or the age is not a number of seconds.

    Examples
    --------
    >>> recorded_options({"max_memtable_size": "1024", "durable_write": "true"}, where="example")
    {'max_memtable_bytes': 1024}
    """
    found: dict[str, float] = {}
    for name, option in _OPTIONS.items():
        text = recorded.get(name)
        if text is None or option in given:
            continue
        if not (text.isascii() and text.isdecimal() and 1 <= int(text[:20]) < 1 << 63):
            raise OptionError(
                f"the writer default {name} recorded with the table is {text[:40]!r}",
                where=where,
                hint=f"Pass {option}= to table.writer()",
            )
        found[option] = int(text)
    text = recorded.get(MAX_MEMTABLE_AGE)
    if text is not None and "max_memtable_age" not in given:
        try:
            found["max_memtable_age"] = float(text)
        except ValueError:
            raise OptionError(
                f"the writer default {MAX_MEMTABLE_AGE} recorded with the table is {text[:40]!r}",
                where=where,
                hint="Pass max_memtable_age= to table.writer()",
            ) from None
    return found
