"""The state of a table that a read requests: a fresh one, or an earlier one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from weir.errors import OptionError
from weir.format.snapshot_token import SnapshotToken
from weir.snapshots.snapshot import STRONG, Consistency

__all__ = ["AskedState", "At"]

At = SnapshotToken | datetime | str
"""What names a state: a token or its text, a tag, or an instant."""


@dataclass(frozen=True, slots=True)
class AskedState:
    """What ``consistency=`` and ``at=`` of a read say together. Made by :meth:`of`.

    Parameters
    ----------
    fresh : Consistency
        How fresh the state has to be, where there is no token.
    token : SnapshotToken or None
        The token whose state it is.
    """

    fresh: Consistency
    token: SnapshotToken | None

    @classmethod
    def of(
        cls, consistency: str | Consistency, at: At | None, token_of: Callable[[At], SnapshotToken]
    ) -> AskedState:
        """Check which state is asked for.

        Parameters
        ----------
        consistency : str or Consistency
            As it was passed; anything but the default contradicts a token.
        at : SnapshotToken, datetime or str, optional
            What names the state.
        token_of : callable
            Returns the token of what was named so.

        Raises
        ------
        OptionError
            If there is no such consistency, or there is a token too.
        InputError
            If there is no such state, or it is of another table.
        """
        fresh = Consistency.parse(consistency)
        if at is None:
            return cls(fresh, None)
        if consistency is not STRONG:
            raise OptionError(
                f"at= names the state to read, which contradicts consistency={str(fresh)!r}",
                where="consistency",
                hint="Pass one of them",
            )
        return cls(fresh, token_of(at))

    def __str__(self) -> str:
        """Return a description of the state."""
        return str(self.fresh) if self.token is None else "at a snapshot token"
