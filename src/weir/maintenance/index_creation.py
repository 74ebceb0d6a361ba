"""Building indexes on a table: requested ones, and those that a policy chooses.

A policy's choice for a column follows from its type and from a sample of the rows, taken by a normal read, so
that tables with only unmerged rows have one too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from weir.base.index_changes import base_indexes, free_index_name
from weir.base.index_changes import create_index as build_index
from weir.base.table import BaseTable
from weir.errors import IndexNotFoundError
from weir.indexing.definition import IndexDefinition
from weir.indexing.kinds import IndexKind, as_kind
from weir.indexing.policy import IndexPolicy, sub_vectors

__all__ = ["create_index", "create_indexes"]

_SAMPLE_ROWS = 4096

Sample = Callable[[int], pa.Table]


def create_index(
    base: BaseTable,
    sample: Sample,
    column: str,
    kind: str | IndexKind | None = None,
    *,
    name: str | None = None,
    replace: bool = False,
    parameters: Mapping[str, Any],
) -> IndexDefinition:
    """Build an index on a column, and return it as it was built.

    Parameters
    ----------
    base : BaseTable
        The base table at any version.
    sample : callable
        Reads the sample, if no kind is given: takes how many rows at most, gives rows of the merged view.
    column, kind, name, replace, parameters
        As for :meth:`weir.TableIndexes.create`.

    Raises
    ------
    IndexDefinitionError
        If the column cannot have such an index, or the kind has no such parameter.
    IndexExistsError
        If an index of that name exists, or one of that kind on the column and no name was given.
    IndexNotFoundError
        If it was built, and dropped by another process or lost to a failing disk before it could be read.
    """
    base = base.latest()
    if kind is None:
        definition = IndexPolicy().definition(base.schema, column, sample(_SAMPLE_ROWS))
    else:
        definition = IndexDefinition(column, column, as_kind(kind))
    definition.check_column(base.schema)
    if definition.kind is IndexKind.IVF_PQ:
        # The library has a default for every parameter but this one.
        parameters = {"num_sub_vectors": sub_vectors(base.schema.field(column).type), **parameters}
    definition = IndexDefinition(
        name or free_index_name(base, column, definition.kind),
        column,
        definition.kind,
        {**definition.parameters, **parameters},
    )
    after = build_index(base, definition, replace=replace)
    for index in base_indexes(after):
        if index.name == definition.name and index.definition is not None:
            return index.definition
    raise IndexNotFoundError(
        f"the index {definition.name} was built but is gone: it was dropped since, or its files were torn "
        "and their version was set aside",
        where=base.uri,
        hint="List the indexes and look at the disk, then build it again",
    )


def create_indexes(base: BaseTable, sample: Sample, policy: IndexPolicy) -> tuple[IndexDefinition, ...]:
    """Build every index that a policy says and the table does not have, and return those.

    Raises
    ------
    IndexDefinitionError
        If a column that the policy names does not exist, or cannot have that kind of index.
    """
    base = base.latest()
    have = {
        (index.column, index.definition.kind) for index in base_indexes(base) if index.definition is not None
    }
    planned = policy.plan(base.schema, base.primary_key, sample(_SAMPLE_ROWS))
    return tuple(
        create_index(base, sample, one.column, one.kind, parameters=one.parameters)
        for one in planned
        if (one.column, one.kind) not in have
    )
