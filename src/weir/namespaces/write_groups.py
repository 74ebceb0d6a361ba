"""Which waiting writes of a namespace share a log entry, their combination, and what each has done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weir.namespaces.decision import Prepared
from weir.namespaces.documents import row_sizes
from weir.namespaces.names import ID
from weir.namespaces.values import column_values
from weir.namespaces.write import Documents, Write, Written

__all__ = ["groups_of", "one_write", "written_by_each"]


def groups_of(writes: Sequence[Write]) -> Iterator[list[Write]]:
    """Yield writes in their order, those together that are one write.

    These are consecutive writes of whole documents, under the same condition if any, or deletes by id, and
    nothing else. A group has only one conditional write per document: the next one has to see its effect.

    Parameters
    ----------
    writes : sequence of Write
        In the order in which they are done.

    Examples
    --------
    >>> one, other = (Write(deletes=[id]) for id in (1, 2))
    >>> [len(group) for group in groups_of([one, other, Write(patches=Documents([3], {"n": [1]})), one])]
    [2, 1, 1]
    """
    group: list[Write] = []
    decided: set[int | str] = set()
    is_plain = False
    for write in writes:
        ids = _decided_ids(write)
        if group:
            is_alike = is_plain and _is_plain(write) and _are_alike(write, group[0])
            if not (is_alike and ids is not None and decided.isdisjoint(ids)):
                yield group
                group, decided = [], set()
        if not group:
            is_plain = _is_plain(write)
        group.append(write)
        decided.update(ids or ())
    if group:
        yield group


def one_write(group: Sequence[Write]) -> Write:
    """Return the write that a group of :func:`groups_of` is together.

    Examples
    --------
    >>> group = [Write(upserts=Documents([1], {"a": [2]})), Write(upserts=Documents([3], {"b": [4]}))]
    >>> one_write(group).upserts.values
    {'a': [2, None], 'b': [None, 4]}
    """
    every = [write.upserts for write in group if write.upserts is not None]
    if not every:
        return replace(group[0], deletes=[*chain.from_iterable(write.deletes for write in group)])
    names = dict.fromkeys(chain.from_iterable(documents.values for documents in every))
    values = {
        name: [
            *chain.from_iterable(documents.values.get(name) or [None] * len(documents) for documents in every)
        ]
        for name in names
    }
    ids = [*chain.from_iterable(documents.ids for documents in every)]
    return replace(group[0], upserts=Documents(ids, values))


def written_by_each(
    group: Sequence[Write], prepared: Prepared, done: pa.ChunkedArray | None
) -> list[Written]:
    """Return what each of the writes has done that were one write.

    Parameters
    ----------
    group : sequence of Write
        The writes, whose documents follow one another in the one write.
    prepared : Prepared
        The one write.
    done : ChunkedArray, optional
        The ids of the documents that were written. Default: all.
    """
    written: list[Written] = []
    begin = 0
    if prepared.upserts is None:
        assert prepared.deletes is not None
        for write in group:
            gone = prepared.deletes.slice(begin, len(write.deletes))
            begin += len(gone)
            told = column_values(gone) if write.return_ids else []
            written.append(Written(deleted=len(gone), deleted_ids=told))
        return written
    # For all writes at once: to ask Arrow for each would take longer than to write them.
    ids = prepared.upserts.column(ID)
    is_done = None if done is None else np.asarray(pc.is_in(ids, value_set=done))
    bytes_before = np.concatenate([[0], row_sizes(prepared.upserts).cumsum()])
    for write in group:
        end = begin + (0 if write.upserts is None else len(write.upserts))
        own = slice(begin, end)
        told = []
        if write.return_ids:
            some = ids[own]
            told = column_values(some if is_done is None else some.filter(pa.array(is_done[own])))
        count = end - begin if is_done is None else np.count_nonzero(is_done[own])
        size = int(bytes_before[end] - bytes_before[begin])
        written.append(Written(upserted=int(count), upserted_ids=told, bytes=size))
        begin = end
    return written


def _are_alike(write: Write, first: Write) -> bool:
    """Whether two plain writes are one."""
    if write.create != first.create:
        return False
    if write.upserts is None or first.upserts is None:
        return write.upserts is None and first.upserts is None
    return write.upsert_condition == first.upsert_condition


def _is_plain(write: Write) -> bool:
    """Whether it writes whole documents, or deletes by id, and neither looks for others nor says more."""
    says_more = write.declarations or write.metric is not None
    if says_more or (write.looks_before and not write.is_decided_by_key):
        return False
    if write.upserts is None or not len(write.upserts):
        return write.upserts is None and len(write.deletes) > 0
    lengths = {len(values) for values in write.upserts.values.values()}
    return not write.deletes and lengths <= {len(write.upserts)}


def _decided_ids(write: Write) -> set[int | str] | None:
    """Return the ids of documents that a condition decides on; None if there are others than ids can be."""
    if write.upsert_condition is None or write.upserts is None:
        return set()
    found = {id for id in write.upserts.ids if isinstance(id, int | str)}
    return found if len(found) == len(write.upserts) else None
