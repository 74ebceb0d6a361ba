"""How long a demo waits for progress before it reports its state and ends."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from weir.errors import WriterError

__all__ = ["PATIENCE_SECONDS", "Patience", "load"]

PATIENCE_SECONDS = 60.0
"""Seconds without progress after which a demo ends, where the machine has nothing else to do."""


def load() -> float:
    """Return how many processes compete for each processor of this machine; 1 if it has room."""
    try:
        return max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0)
    except OSError:
        return 1.0


class Patience:
    """Notices when progress has stopped.

    Parameters
    ----------
    where : str
        What is waited for.
    standing : callable
        Says how far it is, for people.
    clock : callable
        Seconds that never go back.
    load : callable
        How many times longer everything takes at the moment: a machine that is busy with other work is given
        as many times the :data:`PATIENCE_SECONDS`.
    """

    def __init__(
        self,
        where: str,
        standing: Callable[[], str],
        *,
        clock: Callable[[], float] = time.monotonic,
        load: Callable[[], float] = load,
    ) -> None:
        self._where = where
        self._standing = standing
        self._clock = clock
        self._load = load
        self._last: object = None
        self._since = clock()

    def look(self, progress: object) -> None:
        """Compare what progress there is with what there was.

        Raises
        ------
        WriterError
            If it has been the same for too long.
        """
        now = self._clock()
        if progress != self._last:
            self._last, self._since = progress, now
        elif now - self._since >= PATIENCE_SECONDS * self._load():
            raise WriterError(
                f"nothing has moved for {now - self._since:.0f} s: {self._standing()}",
                where=self._where,
                hint="Run it again with --keep to look at what it leaves, or with fewer --flights",
            )
