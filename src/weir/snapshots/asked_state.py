"""Which state of a table a read asks for: one that is fresh enough, or the one that a token names."""

from __future__ import annotations

from dataclasses import dataclass

from weir.errors import OptionError
from weir.format.snapshot_token import SnapshotToken
from weir.snapshots.snapshot import STRONG, Consistency
from weir.snapshots.tokens import as_token

__all__ = ["AskedState"]


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
    def of(cls, consistency: str | Consistency, at: SnapshotToken | str | None, *, table: str) -> AskedState:
        """Check which state is asked for.

        Parameters
        ----------
        consistency : str or Consistency
            As it was passed; anything but the default contradicts a token.
        at : SnapshotToken or str, optional
            A token, or its text.
        table : str
            Identity of the table that is read.

        Raises
        ------
        OptionError
            If there is no such consistency, or there is a token too.
        InputError
            If the token is none, or of another table.
        """
        fresh = Consistency.parse(consistency)
        if at is None:
            return cls(fresh, None)
        if consistency is not STRONG:
            raise OptionError(
                f"at= names the state to read, so that consistency={str(fresh)!r} contradicts it",
                where="consistency",
                hint="Pass one of them",
            )
        return cls(fresh, as_token(at, table, where="at"))

    def __str__(self) -> str:
        """Return which state it is, for people."""
        return str(self.fresh) if self.token is None else "at a snapshot token"
