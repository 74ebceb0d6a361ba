"""Writes to a namespace and their results, as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weir import Source
from weir.errors import InputError
from weir.namespaces.attributes import Attribute, Metric
from weir.namespaces.filter.expression import Filter

__all__ = [
    "MOST_VALUES",
    "Declaration",
    "Documents",
    "MarkedWrite",
    "Patch",
    "Write",
    "Written",
    "WrittenOnce",
    "check_values",
]

MOST_VALUES = 20_000_000
"""Values of the documents of one write, missing ones too: most are, if documents have nothing in common."""


def check_values(rows: int, attributes: int) -> None:
    """Refuse more values than one write holds.

    Raises
    ------
    InputError
        Saying how many there are.
    """
    if rows * attributes > MOST_VALUES:
        raise InputError(
            f"{rows:,} documents with {attributes:,} attributes have more than {MOST_VALUES:,} values",
            hint="Write fewer of them at a time",
        )


@dataclass(frozen=True, slots=True)
class Documents:
    """Documents by columns.

    Parameters
    ----------
    ids : sequence
        The id of each.
    values : mapping of str to sequence
        By attribute, the value of each; None where it is missing.
    given : mapping of str to sequence of bool
        For a patch, by attribute, which documents it applies to: the others keep their values. A missing
        attribute applies to all of them.
    """

    ids: Sequence[Any]
    values: Mapping[str, Sequence[Any]]
    given: Mapping[str, Sequence[bool]] = field(default_factory=dict)

    @classmethod
    def of_rows(cls, rows: Sequence[Mapping[str, Any]]) -> Documents:
        """Return documents that are dicts, each with an ``id``.

        Raises
        ------
        InputError
            If they have more values than one write holds.

        Examples
        --------
        >>> Documents.of_rows([{"id": 1, "a": 2}, {"id": 2}]).values
        {'a': [2, None]}
        """
        if len(rows) == 1:
            row = rows[0]
            check_values(1, len(row))
            return cls([row.get("id")], {name: [value] for name, value in row.items() if name != "id"})
        names: dict[str, None] = {}
        for row in rows:
            names.update(dict.fromkeys(row))
            check_values(len(rows), len(names))
        names.pop("id", None)
        values = {name: [row.get(name) for row in rows] for name in names}
        given = {name: [name in row for row in rows] for name in names}
        return cls(
            [row.get("id") for row in rows],
            values,
            {name: there for name, there in given.items() if not all(there)},
        )

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Declaration:
    """The declaration of an attribute in a write.

    Parameters
    ----------
    attribute : Attribute, optional
        The new attribute; None to drop it.
    says : frozenset of str
        Which of its properties were named. The others stay as they are.
    """

    attribute: Attribute | None
    says: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Patch:
    """New values for every document that a filter takes."""

    where: Filter
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One write. All of it is done at one moment, or nothing.

    What filters find is deleted first, then patched; upserts, patches and deletes by id follow. A condition
    is for documents that exist: an upsert of another id is done, a patch or a delete is not.

    Parameters
    ----------
    upserts, patches : Documents, optional
        Documents to write whole, and values to change of documents that exist.
    deletes : sequence
        Ids of documents to delete.
    delete_where : Filter, optional
        Documents to delete.
    patch_where : Patch, optional
        Values to set.
    delete_partial, patch_partial : bool
        Whether to do a part where a filter takes more documents than one write may touch. Default False:
        such a write is refused.
    upsert_condition, patch_condition, delete_condition : Filter, optional
        Which of the present documents are written over, patched and deleted.
    declarations : mapping of str to Declaration
        The declared attributes.
    metric : Metric, optional
        How vectors are compared.
    create : bool, optional
        Whether to create the namespace if it does not exist. Default: if there are documents for it.
    return_ids : bool
        Whether to return the ids of the documents that were written.
    """

    upserts: Documents | None = None
    patches: Documents | None = None
    deletes: Sequence[Any] = ()
    delete_where: Filter | None = None
    patch_where: Patch | None = None
    delete_partial: bool = False
    patch_partial: bool = False
    upsert_condition: Filter | None = None
    patch_condition: Filter | None = None
    delete_condition: Filter | None = None
    declarations: Mapping[str, Declaration] = field(default_factory=dict)
    metric: Metric | None = None
    create: bool | None = None
    return_ids: bool = False

    @property
    def named_documents(self) -> int:
        """How many documents it names by their ids."""
        written = sum(len(one) for one in (self.upserts, self.patches) if one is not None)
        return written + len(self.deletes)

    @property
    def looks_before(self) -> bool:
        """Whether its effect depends on existing documents."""
        return (
            self.patches is not None
            or self.delete_where is not None
            or self.patch_where is not None
            or self.upsert_condition is not None
            or (self.delete_condition is not None and bool(self.deletes))
        )

    @property
    def is_decided_by_key(self) -> bool:
        """Whether it only writes whole documents, each if the existing one meets a condition."""
        return (
            self.upsert_condition is not None
            and self.patches is None
            and self.delete_where is None
            and self.patch_where is None
            and not self.deletes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a write has done.

    Parameters
    ----------
    upserted, patched, deleted : int
        Documents.
    remaining : bool
        Whether a filter takes more documents than were touched.
    upserted_ids, patched_ids, deleted_ids : list
        Their ids, if they were asked for.
    bytes : int
        Of Arrow data that was written.
    created : bool
        Whether it has made the namespace.
    """

    upserted: int = 0
    patched: int = 0
    deleted: int = 0
    remaining: bool = False
    upserted_ids: list[Any] = field(default_factory=list)
    patched_ids: list[Any] = field(default_factory=list)
    deleted_ids: list[Any] = field(default_factory=list)
    bytes: int = 0
    created: bool = False


@dataclass(frozen=True, slots=True)
class MarkedWrite:
    """A write that is done once, however often it is repeated.

    Parameters
    ----------
    write : Write
        The write.
    source : Source
        The mark, of a single write.
    decided : callable
        Called before the write with its result, whether there is anything to do, and the name of the table,
        if these do not follow from the write alone. So not for a write of documents, or a delete by id, in an
        existing namespace; nor for one that depends on documents and was already made.
    """

    write: Write
    source: Source
    decided: Callable[[Written, bool, str], None]


@dataclass(frozen=True, slots=True)
class WrittenOnce:
    """What came of a write that is done once.

    Parameters
    ----------
    written : Written
        Its result; for one already made, what it would do now, which is the same unless it depends on
        documents.
    first : int, optional
        The number of the mark that the write was done with already. Default: it was done now.
    table : str
        The name of the namespace's table, a new one after it was deleted and created again.
    """

    written: Written
    first: int | None
    table: str
