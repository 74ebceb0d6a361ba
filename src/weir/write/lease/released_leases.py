"""The leases that writers of this process have released, whatever the store says of them.

Releasing is a write, and the store may fail just then, or may have failed before it answered the claim. The
stored lease then looks like that of an active writer, and would block everyone until it expires. This process
knows better: its next writer need not wait.
"""

from __future__ import annotations

import threading
from collections import deque

from weir.format.lease import Lease

__all__ = ["ReleasedLeases", "released_leases"]

_MOST = 4096


class ReleasedLeases:
    """Remembers which leases are no longer used. Thread-safe.

    If there are very many, only the most recently released.
    """

    def __init__(self) -> None:
        self._leases: dict[tuple[object, str, int], None] = {}
        self._abandoned: deque[Lease] = deque()
        self._lock = threading.Lock()

    def abandon(self, lease: Lease) -> None:
        """Remember, as :meth:`add` does, the lease of a writer that is being collected; takes no lock."""
        self._abandoned.append(lease)

    def add(self, lease: Lease) -> None:
        """Remember that a lease was given up, however often it was renewed before."""
        with self._lock:
            self._add(lease)

    def remove(self, lease: Lease) -> None:
        """Forget a lease that was given up, since its writer has taken it back."""
        with self._lock:
            self._leases.pop(_identity(lease), None)

    def has(self, lease: Lease) -> bool:
        """Whether a lease was given up by this process."""
        with self._lock:
            while self._abandoned:
                self._add(self._abandoned.popleft())
            return _identity(lease) in self._leases

    def _add(self, lease: Lease) -> None:
        self._leases[_identity(lease)] = None
        while len(self._leases) > _MOST:
            del self._leases[next(iter(self._leases))]


def _identity(lease: Lease) -> tuple[object, str, int]:
    # A holder may take one shard's lease several times, each time with a higher epoch.
    return lease.shard_id, lease.holder.holder_id, lease.epoch


released_leases = ReleasedLeases()
"""Those of this process."""
