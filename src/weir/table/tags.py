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
    """Names for states of a table, each kept until its tag is dropped. Got from :attr:`weir.Table.tags`.

    Parameters
    ----------
    table : OpenTable
        The table.
    """

    def __init__(self, table: OpenTable) -> None:
        self._table = table

    def create(self, name: str, at: At | None = None) -> Tag:
        """Name a state of the table, so that reads can use it as ``at=name``.

        Garbage collection keeps the state until the tag is dropped.

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
            If the tag exists already, or the table has no such state.
        SnapshotExpiredError
            If part of the state was collected or is about to be. No tag is created.

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
            If a stored record is damaged.
        """
        return list_tags(self._table.store)

    def pinned(self) -> Sequence[SnapshotPin]:
        """Return the unnamed snapshots that are currently kept, the oldest first.

        These are the tokens of :meth:`weir.Table.snapshot` whose ``retain`` has not passed and that were not
        released.

        Raises
        ------
        CorruptionError
            If a stored record is damaged.
        """
        return pinned_snapshots(self._table.store, datetime.now(UTC))

    def drop(self, name: str) -> None:
        """Drop a tag: nothing more is kept for it. Idempotent.

        Raises
        ------
        OptionError
            If the name is not a valid tag name.
        """
        drop_tag(self._table.store, name)
