"""The properties that an ``alter`` can change besides columns: expiry and sort order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from types import EllipsisType

import pyarrow as pa

from weir.base.append_only import chosen_append_only
from weir.base.expiry import chosen_expiry
from weir.base.table import BaseTable
from weir.errors import OptionError
from weir.format.append_only import APPEND_ONLY
from weir.format.append_only import encode as encode_append_only
from weir.format.expiry import EXPIRY
from weir.format.expiry import FEATURE as EXPIRY_FEATURE
from weir.format.expiry import encode as encode_expiry
from weir.format.field_births import Births
from weir.format.index_details import IndexDetails

__all__ = ["PropertyChanges"]


@dataclass(frozen=True, slots=True)
class PropertyChanges:
    """The requested changes; an ellipsis means no change.

    Merge engine and key cannot be changed: unmerged versions of a row would combine differently from merged
    ones.

    Parameters
    ----------
    expire_by : str or None, optional
        The column by which rows expire; None for rows that do not.
    expire_after : timedelta, optional
        How long after the time in that column.
    sort_by : str or sequence of str, optional
        The new sort columns of an append-only table.
    """

    expire_by: str | EllipsisType | None = ...
    expire_after: timedelta | EllipsisType = ...
    sort_by: str | Sequence[str] | EllipsisType = ...

    def __bool__(self) -> bool:
        """Whether there is any change."""
        return not (self.expire_by is self.expire_after is self.sort_by is ...)

    @property
    def changes_expiry(self) -> bool:
        """Whether expiry changes."""
        return not (self.expire_by is self.expire_after is ...)

    @property
    def changes_order(self) -> bool:
        """Whether the sort order changes."""
        return self.sort_by is not ...

    def applied(
        self,
        base: BaseTable,
        details: IndexDetails,
        schema: pa.Schema,
        ids: Mapping[str, int],
        births: Births,
    ) -> IndexDetails:
        """Return the details of a table afterwards.

        Parameters
        ----------
        base : BaseTable
            The table.
        details : IndexDetails
            Its details.
        schema : Schema
            The columns that it has afterwards.
        ids : mapping of str to int
            Their field ids.
        births : mapping of int to str or None
            Their births, by field id.

        Raises
        ------
        OptionError, SchemaError
            Rows cannot expire or be sorted so.
        """
        if self.changes_expiry:
            details = self._with_expiry(base, details, schema, ids, births)
        return self._sorted(base, details, schema, ids, births) if self.changes_order else details

    def _with_expiry(
        self,
        base: BaseTable,
        details: IndexDetails,
        schema: pa.Schema,
        ids: Mapping[str, int],
        births: Births,
    ) -> IndexDetails:
        before = base.expiry
        column, after = self.expire_by, self.expire_after
        if isinstance(column, EllipsisType):
            column = None if before is None else before.column
        chosen = None if isinstance(after, EllipsisType) else after
        if isinstance(after, EllipsisType) and before is not None and column is not None:
            chosen = before.after
        expiry = chosen_expiry(chosen, column, schema, base.merge_engine)
        defaults = {name: one for name, one in details.writer_config_defaults.items() if name != EXPIRY}
        features = [name for name in details.features if name != EXPIRY_FEATURE]
        if expiry is not None:
            defaults[EXPIRY] = encode_expiry(expiry, ids, births)
            features.append(EXPIRY_FEATURE)
        return replace(details, features=tuple(sorted(features)), writer_config_defaults=defaults)

    def _sorted(
        self,
        base: BaseTable,
        details: IndexDetails,
        schema: pa.Schema,
        ids: Mapping[str, int],
        births: Births,
    ) -> IndexDetails:
        assert not isinstance(self.sort_by, EllipsisType)
        before = base.append_only
        names = (self.sort_by,) if isinstance(self.sort_by, str) else self.sort_by
        if not isinstance(names, Sequence):
            raise OptionError(f"sort_by is a list of columns, got {self.sort_by!r:.80}", where="sort_by")
        unique = base.primary_key if before is None else before.unique
        append = chosen_append_only(unique, before is None, tuple(names), schema)
        if append is None:
            return details
        recorded = {APPEND_ONLY: encode_append_only(append, ids, births)}
        return replace(details, writer_config_defaults={**details.writer_config_defaults, **recorded})
