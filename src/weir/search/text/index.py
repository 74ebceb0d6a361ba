"""The full-text index of a column of the base table: its coverage and its word statistics.

Only the live rows of an index are of use for statistics: an index still counts rows that have been deleted
since it was made.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.file import LanceFileReader
from lance.query import FullTextQuery
from lance.query import MatchQuery as LanceMatchQuery

from weir.base.dataset import library_options
from weir.base.index_list import list_indexes
from weir.base.index_store import index_store
from weir.base.table import BaseTable
from weir.errors import CorruptionError, QueryError
from weir.lsm.damage import reading
from weir.search.text.bm25 import inverse_document_frequency
from weir.search.text.segment import TextSegment, stop_words, text_segment
from weir.search.text.tokenizer import TextRows, Tokenizer

if TYPE_CHECKING:
    from lance.lance import IndexDescription

__all__ = ["Occurrences", "TextIndex", "text_index"]

RowIds = npt.NDArray[np.uint64]

_KIND = "Inverted"
_NO_ROWS: RowIds = np.zeros(0, dtype=np.uint64)
_NO_COUNTS: npt.NDArray[np.int32] = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Occurrences:
    """Where a word occurs.

    Parameters
    ----------
    row_ids : ndarray of uint64
        The rows, ascending.
    counts, lengths : ndarray of int32
        How often each has the word, and how many words it has.
    """

    row_ids: RowIds
    counts: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        """Bytes it takes in memory."""
        return self.row_ids.nbytes + self.counts.nbytes + self.lengths.nbytes


@dataclass(frozen=True, slots=True)
class TextIndex:
    """The full-text index of one column of one version of the base table. Made by :func:`text_index`.

    Parameters
    ----------
    base : BaseTable
        The base table.
    column : str
        The column.
    tokenizer : Tokenizer
        The tokenizer of the index.
    has_positions : bool
        Whether it can answer phrases.
    fragments : frozenset of int
        The fragments that it covers.
    row_ids : ndarray of uint64
        The rows that have words and count still, ascending.
    lengths : ndarray of int32
        Words of each of them.
    indexed_documents, indexed_words : int
        What Lance's scores are by: rows that have words and words, deleted ones included.
    longest : int
        Most words of one row.
    identity : tuple of str
        Its files, for caches.
    name : str
        Its name.
    rivals : tuple of str
        The names of other full-text indexes of the column.
    """

    base: BaseTable = field(repr=False)
    column: str
    tokenizer: Tokenizer
    has_positions: bool
    fragments: frozenset[int]
    row_ids: RowIds = field(repr=False)
    lengths: npt.NDArray[np.int32] = field(repr=False)
    indexed_documents: int
    indexed_words: int
    longest: int
    identity: tuple[str, ...] = field(repr=False)
    name: str
    rivals: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[Hashable, ...]:
        """What everything that follows from it is cached by."""
        return (self.base.namespace, self.base.version_key, self.column, self.identity, self.fragments)

    @property
    def nbytes(self) -> int:
        """Bytes it takes in memory."""
        return 4096 + self.row_ids.nbytes + self.lengths.nbytes

    @property
    def is_current(self) -> bool:
        """Whether every row that it knows counts still."""
        return len(self.row_ids) == self.indexed_documents

    @property
    def is_readable(self) -> bool:
        """Whether its files are as expected, so that :meth:`occurrences` can read them."""
        return all(_segment(self.base, uuid) is not None for uuid in self.identity)

    def find(self, query: FullTextQuery, columns: list[str], limit: int | None = None) -> pa.Table:
        """Return what Lance finds in the index, best first, with ``_score`` and ``_rowid``.

        Raises
        ------
        QueryError
            As :meth:`refuse_rivals` does.
        """
        self.refuse_rivals()
        with reading(f"base table version {self.base.version}", self.base.uri):
            return self.base.dataset.scanner(
                columns=[*columns, "_score"],
                full_text_query=query,
                limit=limit,
                fast_search=True,
                with_row_id=True,
                disable_scoring_autoprojection=True,
            ).to_table()

    def refuse_rivals(self) -> None:
        """Refuse to ask Lance if the column has several indexes: it takes any, and does not say which.

        Raises
        ------
        QueryError
            Naming them.
        """
        if self.rivals:
            raise QueryError(
                f"column {self.column!r} has several full-text indexes, {self.name!r} and "
                f"{', '.join(map(repr, self.rivals))}, and Lance answers this query by any of them",
                where="column",
                hint=f'Drop all but one, such as table.indexes.drop("{self.rivals[0]}")',
            )

    def knows(self, row_ids: RowIds) -> npt.NDArray[np.bool_]:
        """Return which rows are among those that it speaks for."""
        if not len(self.row_ids):
            return np.zeros(len(row_ids), dtype=bool)
        at = np.minimum(self.row_ids.searchsorted(row_ids), len(self.row_ids) - 1)
        found: npt.NDArray[np.bool_] = self.row_ids[at] == row_ids
        return found

    def occurrences(self, word: str) -> Occurrences | None:
        """Return where a word occurs among the live rows, or None if only the library can read it.

        Parameters
        ----------
        word : str
            As the tokenizer makes it.
        """
        segments = [_segment(self.base, uuid) for uuid in self.identity]
        if len(segments) == 1 and segments[0] is not None and self.is_current:
            return _ascending(Occurrences(*segments[0].occurrences(word)))
        return self.base.engine.cache.get_or_load(
            ("occurrences", *self.key, word),
            lambda: (self._occurrences(segments, word),),
            lambda loaded: loaded[0].nbytes if loaded[0] else 0,
        )[0]

    def _occurrences(self, segments: Sequence[TextSegment | None], word: str) -> Occurrences | None:
        found = [one.occurrences(word) for one in segments if one is not None]
        if len(found) < len(segments):
            return None
        every = _ascending(
            Occurrences(
                np.concatenate([_NO_ROWS, *(one[0] for one in found)]),
                np.concatenate([_NO_COUNTS, *(one[1] for one in found)]),
                np.concatenate([_NO_COUNTS, *(one[2] for one in found)]),
            )
        )
        known = self.knows(every.row_ids)
        return Occurrences(every.row_ids[known], every.counts[known], every.lengths[known])

    def rows_having(self, word: str, source: str) -> RowIds:
        """Return the live rows that have a word.

        Parameters
        ----------
        word : str
            As the tokenizer makes it.
        source : str
            A text that it makes the word of, possibly with others.
        """
        read = self.occurrences(word)
        if read is not None:
            return read.row_ids
        key = ("having", *self.key, word)
        return self.base.engine.cache.get_or_load(
            key, lambda: self._found_having(word, source), lambda loaded: loaded.nbytes
        )

    def _found_having(self, word: str, source: str) -> RowIds:
        asked = next((text for text in (word, *source.split()) if self.tokenizer.words(text) == [word]), None)
        columns = [] if asked is not None else [self.column]
        found = self.find(LanceMatchQuery(asked or source, self.column), columns)
        if asked is None:
            texts = TextRows(found.column(self.column).combine_chunks(), self.tokenizer)
            found = found.take(pa.array(texts.occurrences(word)[0]))
        row_ids: RowIds = np.sort(found.column("_rowid").to_numpy())
        return row_ids[self.knows(row_ids)]

    def lengths_of(self, row_ids: RowIds) -> npt.NDArray[np.int32]:
        """Return how many words each of some rows has, of those that it speaks for."""
        known = row_ids[self.knows(row_ids)]
        return self.lengths[self.row_ids.searchsorted(known)]

    def least_idf(self, frequency: int) -> float:
        """Return the least that Lance can take for the idf of a term that so many rows have."""
        deleted = self.indexed_documents - len(self.row_ids)
        return inverse_document_frequency(self.indexed_documents, frequency + deleted)

    def most_idf(self, frequency: int) -> float:
        """Return the most that Lance can take for the idf of a term that so many rows have."""
        return inverse_document_frequency(self.indexed_documents, frequency)


def _ascending(found: Occurrences) -> Occurrences:
    if (found.row_ids[1:] > found.row_ids[:-1]).all():
        return found
    order = np.argsort(found.row_ids, kind="stable")
    return Occurrences(found.row_ids[order], found.counts[order], found.lengths[order])


def _segment(base: BaseTable, uuid: str) -> TextSegment | None:
    return text_segment(index_store(base, uuid), base.namespace, f"_indices/{uuid}")


def _stop_words(base: BaseTable, uuid: str) -> tuple[str, ...] | None:
    return stop_words(index_store(base, uuid), base.namespace, f"_indices/{uuid}")


def text_index(base: BaseTable, column: str, within: frozenset[int] | None = None) -> TextIndex:
    """Return the full-text index of a column of the base table.

    Parameters
    ----------
    within : frozenset of int, optional
        Speak for these fragments only. Default: all that the index covers.

    Raises
    ------
    QueryError
        If there is none, or it is of an unusable kind; the hint says what helps.
    CorruptionError
        If a newer version may have one, and is torn.
    """
    if within is not None:
        every = text_index(base, column)
        if every.fragments == within:
            return every
    key = ("text index", base.namespace, base.version_key, column, within)

    def found() -> tuple[int, tuple[Any, ...]]:
        index = _find(base, column, within)
        return index.nbytes, tuple(getattr(index, one.name) for one in fields(index)[1:])

    # Without the version it is of, which would keep what the library holds of it: files, and memory.
    _, rest = base.engine.cache.get_or_load(key, found, lambda loaded: loaded[0], base.lifetime)
    return TextIndex(base, *rest)


def _find(base: BaseTable, column: str, within: frozenset[int] | None) -> TextIndex:
    with reading(f"base table version {base.version}", base.uri):
        of_column = [
            one
            for one in list_indexes(base.dataset)
            if one.field_names == [column] and one.index_type == _KIND
        ]
        if of_column:
            return _open(base, column, of_column[0], tuple(one.name for one in of_column[1:]), within)
    if base.torn:
        torn = base.torn[0]
        raise CorruptionError(
            f"column {column!r} has no full-text index in version {base.version}, which is read because "
            f"of version {torn.version}, {torn.reason}",
            where=f"{base.store.uri}/{torn.path}",
            hint="Restore what is missing from a backup, or let the next write set the version aside and "
            f'create the index: table.indexes.create("{column}", "INVERTED")',
        )
    raise QueryError(
        f"column {column!r} has no full-text index, which defines how its text is tokenized",
        where="column",
        hint=f'Create one: table.indexes.create("{column}", "INVERTED")',
    )


def _open(
    base: BaseTable,
    column: str,
    described: IndexDescription,
    rivals: tuple[str, ...],
    within: frozenset[int] | None,
) -> TextIndex:
    details: Mapping[str, Any] = described.details
    segments: Sequence[Any] = described.segments
    if details.get("lance_tokenizer") not in (None, "text") or details.get("document_granularity") not in (
        None,
        "row",
    ):
        raise QueryError(
            f"the full-text index of {column!r} is over JSON or list elements, which cannot be searched",
            where="column",
            hint=f'Create another over texts: table.indexes.create("{column}", "INVERTED")',
        )
    words = [_stop_words(base, str(segment.uuid)) for segment in segments]
    # Rows of a segment that has other stop words, as one of an index that plain Lance made and Weir has
    # extended, are searched by their texts.
    segments = [segment for segment, own in zip(segments, words, strict=True) if own == words[0]]
    tokenizer = Tokenizer.of_index(details, words[0] if words else None)
    type = base.schema.field(column).type
    if (pa.types.is_list(type) or pa.types.is_large_list(type)) and not tokenizer.parts_lines:
        raise QueryError(
            f"the full-text index of {column!r}, which holds lists, does not separate words at line ends",
            where="column",
            hint=f'Create another one: table.indexes.create("{column}", "INVERTED")',
        )
    dataset = base.dataset
    if dataset.has_stable_row_ids:
        # A row that was updated keeps its id there, so that what an index says of it may be of its former
        # text: compactions put entries of several segments together as they are. Texts are read instead.
        segments = ()
    fragments = {fragment.fragment_id: fragment for fragment in dataset.get_fragments()}
    covered: set[int] = set()
    row_ids, lengths, uuids = [], [], []
    for segment in segments:
        uuid = str(segment.uuid)
        covered |= fragments.keys() & set(segment.fragment_ids)
        uuids.append(uuid)
        known = _documents(base, uuid)
        row_ids.append(known[0])
        lengths.append(known[1])
    all_rows = np.concatenate(row_ids) if row_ids else np.zeros(0, dtype=np.uint64)
    all_lengths = np.concatenate(lengths) if lengths else np.zeros(0, dtype=np.int32)
    indexed_words = int(all_lengths.sum())
    if within is not None:
        covered &= within
    order = np.argsort(all_rows, kind="stable")
    all_rows, all_lengths = all_rows[order], all_lengths[order]
    if covered:
        scanner = dataset.scanner(
            columns=[], with_row_id=True, fragments=[fragments[number] for number in sorted(covered)]
        )
        existing = scanner.to_table().column("_rowid").to_numpy()
    else:
        existing = np.zeros(0, dtype=np.uint64)
    live = np.isin(all_rows, existing)
    return TextIndex(
        base,
        column,
        tokenizer,
        bool(details.get("with_position")),
        frozenset(covered),
        all_rows[live],
        all_lengths[live],
        len(all_rows),
        indexed_words,
        int(all_lengths.max(initial=0)),
        tuple(sorted(uuids)),
        described.name,
        rivals,
    )


def _documents(base: BaseTable, uuid: str) -> tuple[RowIds, npt.NDArray[np.int32]]:
    """Return the rows that a segment of an index knows, and how many words each has. It never changes."""

    def load() -> tuple[RowIds, npt.NDArray[np.int32]]:
        row_ids, lengths = [_NO_ROWS], [_NO_COUNTS]
        for own, words in _rows_of_each_partition(base, uuid):
            row_ids.append(own[words > 0])
            lengths.append(words[words > 0])
        return np.concatenate(row_ids), np.concatenate(lengths)

    return base.engine.cache.get_or_load(
        ("text documents", base.namespace, uuid),
        load,
        lambda loaded: loaded[0].nbytes + loaded[1].nbytes,
        base.segment_lifetime(uuid),
    )


def _rows_of_each_partition(base: BaseTable, uuid: str) -> Iterator[tuple[RowIds, npt.NDArray[np.int32]]]:
    segment = _segment(base, uuid)
    if segment is not None:
        yield from ((part.row_ids, part.lengths) for part in segment.partitions)
        return
    store = index_store(base, uuid)
    for meta in store.list(f"_indices/{uuid}"):
        if meta.path.endswith("_docs.lance"):
            reader = LanceFileReader(f"{store.uri}/{meta.path}", storage_options=library_options(store))
            documents = reader.read_all(batch_size=1 << 20).to_table()
            words = documents.column("_num_tokens").to_numpy().astype(np.int32)
            yield documents.column("_rowid").to_numpy(), words
