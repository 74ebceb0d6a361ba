"""Whether files and directories are as they were, by their status alone.

A file system notes when a file was changed, and a directory with every name that comes or goes. It notes it
by a clock that moves in steps: of some milliseconds, or of two seconds at the coarsest. Of two changes in one
step the second leaves no trace. So a status proves something only once its step is over.

A clock that is set back comes by the same steps again. So what it was set by is part of the stamp.

A file system of a network may answer from what this machine remembers. Only those on a block device, which no
other machine changes, are believed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Sequence

__all__ = ["stamp_of"]

_SETTLED_NANOSECONDS = 3_000_000_000
"""A change as old as that was in a step of the clock that is over."""


def stamp_of(locations: Sequence[str]) -> Hashable | None:
    """Return what differs once a file or directory has changed; None where that is not certain.

    That is where one is gone or changed just now, and on other file systems than those of block devices.

    Only the system sets the time of the last change of status (``ctime``), whatever tool makes a change.

    Parameters
    ----------
    locations : sequence of str
        The files and directories.

    Examples
    --------
    >>> import tempfile
    >>> directory = tempfile.mkdtemp()
    >>> print(stamp_of([directory]))
    None
    """
    # Before the status, so that whatever changes after it changes at a later time than this.
    now = time.time_ns()
    # Of a clock that is set back by a second or more it is another number.
    stamp = [(now - time.monotonic_ns()) // 1_000_000_000]
    for location in locations:
        try:
            status = os.stat(location)
        except OSError:
            return None
        changed = status.st_ctime_ns
        if now - changed < _SETTLED_NANOSECONDS or not os.major(status.st_dev):
            return None
        stamp += (status.st_dev, status.st_ino, changed, status.st_size)
    return tuple(stamp)
