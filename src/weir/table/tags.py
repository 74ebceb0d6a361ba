"""The tags of a table: :attr:`weir.Table.tags`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from weir.format.snapshot_pin import SnapshotPin
from weir.format.tag import Tag
from weir.snapshots.asked_state import At
from weir.snapshots.tags import create_tag, drop_tag, list_tags
from weir.snapshots.tokens import pinned_snapshots
from weir.table.open_table import OpenTable

__all__ = ["TableTags"]


class TableTags:
    """Names for states of a table, which are kept until they are dropped. Got from :attr:`weir.Table.tags`.

    Parameters
    ----------
    table : OpenTable
        The table.
    """

    def __init__(self, table: OpenTable) -> None:
        self._table = table

    def create(self, name: str, at: At | None = None) -> Tag:
        """Give a state of the table a name, under which every read finds it: ``at=name``.

        Garbage collection keeps what it needs until the tag is dropped.

        Parameters
        ----------
        name : str
            1 to 100 letters, digits, ``.``, ``-`` and ``_``.
        at : SnapshotToken, datetime or str, optional
            The state: a token, an instant, another tag. Default: the table as it is now.

        Raises
        ------
        OptionError
            If the name cannot be used.
        InputError
            If the table has a tag of that name, or no such state.
        SnapshotExpiredError
            If something of the state has been collected, or is about to be. There is no tag then.

        Examples
        --------
        >>> import tempfile, weir
        >>> table = weir.create(tempfile.mkdtemp() + "/people", [{"id": 1, "name": "Ada"}], primary_key="id")
        >>> tag = table.tags.create("before-import")
        >>> _ = table.upsert([{"id": 2, "name": "Grace"}])
        >>> table.scan().count(), table.scan(at="before-import").count()
        (2, 1)
        >>> [tag.name for tag in table.tags.list()]
        ['before-import']
        >>> table.tags.drop("before-import")
        """
        reader = self._table.reader
        token = reader.take_token(None) if at is None else reader.token_of(at)
        return create_tag(reader.base, name, token)

    def list(self) -> Sequence[Tag]:
        """Return all tags, by name.

        Raises
        ------
        CorruptionError
            If one is not what was written.
        """
        return list_tags(self._table.store)

    def pinned(self) -> Sequence[SnapshotPin]:
        """Return the snapshots without a name that are kept for a time, the oldest first.

        Those of :meth:`weir.Table.snapshot`, as long as ``retain`` said, unless they were released.

        Raises
        ------
        CorruptionError
            If one is not what was written.
        """
        return pinned_snapshots(self._table.store, datetime.now(UTC))

    def drop(self, name: str) -> None:
        """Forget a tag: nothing is kept for it any more. Idempotent.

        Raises
        ------
        OptionError
            If it cannot be the name of a tag.
        """
        drop_tag(self._table.store, name)
