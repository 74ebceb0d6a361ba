"""The owner of a namespace: the holder of its lease, or else the process chosen by hashing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress

from weir.errors import TableNotFoundError
from weir.namespaces import Namespace
from weir.namespaces.namespace import holder_of
from weir.service.ownership.members import Member, Members

__all__ = ["Owners", "preferred"]


def preferred(name: str, members: Sequence[Member]) -> Member:
    """Return the process that should write a namespace without an owner.

    Rendezvous hashing: when a process joins or leaves, only its own namespaces move.

    Examples
    --------
    >>> a, b = Member("a", "http://a", "h", 1), Member("b", "http://b", "h", 2)
    >>> preferred("docs", [a, b]) == preferred("docs", [b, a])
    True
    """
    return max(
        members, key=lambda member: hashlib.blake2b(f"{member.id}/{name}".encode(), digest_size=8).digest()
    )


class Owners:
    """Finds the process that writes a namespace.

    Parameters
    ----------
    members : Members
        The processes that serve the root.
    """

    def __init__(self, members: Members) -> None:
        self.members = members

    def elsewhere(self, namespace: Namespace) -> Member | None:
        """Return the process that writes a namespace, if it is not this one."""
        if namespace.is_writing:
            return None
        members = self.members.live()
        if len(members) == 1:
            return None
        holder = None
        with suppress(TableNotFoundError):  # the namespace was deleted a moment ago
            holder = namespace.lease_holder()
        if holder is not None:
            owner = next((member for member in members if holder_of(member.id) == holder), None)
            if owner is not None:
                return None if owner.id == self.members.here.id else owner
        chosen = preferred(namespace.name, members)
        return None if chosen.id == self.members.here.id else chosen

    def is_preferred(self, name: str) -> bool:
        """Whether this process should maintain a namespace without an owner."""
        return preferred(name, self.members.live()).id == self.members.here.id
