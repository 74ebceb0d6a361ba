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
    """What ``consistency=`` and ``at=`` of a read say together.

    Parameters
    ----------
    fresh : Consistency
        How fresh the state has to be, where there is no token.
    token : SnapshotToken or None
        The token whose state it is.
    said : Consistency or str
        A description of the state.
    """

    fresh: Consistency
    token: SnapshotToken | None
    said: Consistency | str

    @classmethod
    def at(
        cls, named: At, consistency: str | Consistency, token_of: Callable[[At], SnapshotToken]
    ) -> AskedState:
        """Return an earlier state, named by something.

        Parameters
        ----------
        named : SnapshotToken, datetime or str
            What names the state.
        consistency : str or Consistency
            As it was passed; anything but the default contradicts a token.
        token_of : callable
            Returns the token of what was named so.

        Raises
        ------
        OptionError
            If there is no such consistency, or another one than the default.
        InputError
            If there is no such state, or it is of another table.
        """
        fresh = Consistency.parse(consistency)
        if consistency is not STRONG:
            raise OptionError(
                f"at= names the state to read, which contradicts consistency={str(fresh)!r}",
                where="consistency",
                hint="Pass one of them",
            )
        return cls(fresh, token_of(named), "at a snapshot token")
