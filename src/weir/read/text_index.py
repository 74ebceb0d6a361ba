"""The full-text index of a column of the base table: what it covers, and what it knows of words.

Only what an index has of rows that still count is of use for statistics: an index goes on counting rows that
have been deleted since it was made.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.file import LanceFileReader
from lance.query import FullTextQuery
from lance.query import MatchQuery as LanceMatchQuery

from weir.base.index_list import list_indexes
from weir.base.library_errors import LIBRARY_ERRORS, is_panic
from weir.base.table import BaseTable, library_options
from weir.cache import process_cache
from weir.errors import CorruptionError, QueryError
from weir.format.fst import Fst
from weir.read.bm25 import inverse_document_frequency, weights
from weir.read.damage import reading
from weir.read.tokens_of_text import TextRows, Tokenizer

__all__ = ["TextIndex", "text_index"]

RowIds = npt.NDArray[np.uint64]

_KIND = "Inverted"
_STORED_WORDS = "_token_fst_bytes"


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

    @property
    def key(self) -> tuple[Hashable, ...]:
        """What everything that follows from it is cached by."""
        return (self.base.namespace, self.base.version, self.column, self.identity, self.fragments)

    @property
    def nbytes(self) -> int:
        """Bytes it takes in memory."""
        return 4096 + self.row_ids.nbytes + self.lengths.nbytes

    @property
    def is_current(self) -> bool:
        """Whether every row that it knows counts still."""
        return len(self.row_ids) == self.indexed_documents

    def find(self, query: FullTextQuery, columns: list[str], limit: int | None = None) -> pa.Table:
        """Return what Lance finds in the index, best first, with ``_score`` and ``_rowid``."""
        with reading(f"base table version {self.base.version}", self.base.uri):
            return self.base.dataset.scanner(
                columns=[*columns, "_score"],
                full_text_query=query,
                limit=limit,
                fast_search=True,
                with_row_id=True,
                disable_scoring_autoprojection=True,
            ).to_table()

    def knows(self, row_ids: RowIds) -> npt.NDArray[np.bool_]:
        """Return which rows are among those that it speaks for."""
        if not len(self.row_ids):
            return np.zeros(len(row_ids), dtype=bool)
        at = np.minimum(self.row_ids.searchsorted(row_ids), len(self.row_ids) - 1)
        found: npt.NDArray[np.bool_] = self.row_ids[at] == row_ids
        return found

    def frequency(self, word: str, source: str) -> int:
        """Return how many of the rows that count have a word.

        Parameters
        ----------
        word : str
            As the tokenizer makes it.
        source : str
            A text that it makes the word of, possibly with others.
        """
        key = ("word", self.base.namespace, self.identity, self.is_current or self.base.version, word)
        return process_cache().get_or_load(key, lambda: self._frequency(word, source), lambda _: len(word))

    def _frequency(self, word: str, source: str) -> int:
        if self.is_current:
            segments = [_words(self.base, uuid) for uuid in self.identity]
            if None not in segments:
                return sum(one.frequency(word) for one in segments if one is not None)
        asked = next((text for text in (word, *source.split()) if self.tokenizer.words(text) == [word]), None)
        if asked is not None and self.is_current:
            return self._by_score(word, LanceMatchQuery(asked, self.column))
        found = self.find(
            LanceMatchQuery(asked or source, self.column), [] if asked is not None else [self.column]
        )
        known = self.knows(found.column("_rowid").to_numpy())
        if asked is not None:
            return int(np.count_nonzero(known))
        texts = found.column(self.column).combine_chunks().filter(pa.array(known))
        return len(TextRows(texts, self.tokenizer).occurrences(word)[0])

    def _by_score(self, word: str, query: FullTextQuery) -> int:
        """Return it as it follows from a score, which is the quickest way to ask Lance for it.

        The score of a text is the word's inverse document frequency times a weight that the text decides.
        """
        best = self.find(query, [self.column], limit=1)
        if not best.num_rows:
            return 0
        rows = TextRows(best.column(self.column).combine_chunks(), self.tokenizer)
        _, counts = rows.occurrences(word)
        if not len(counts):
            raise CorruptionError(
                f"the full-text index of {self.column!r} says a row has the word {word!r}, which it lacks",
                where=self.base.uri,
                hint="Create the index anew",
            )
        mean = self.indexed_words / self.indexed_documents
        rarity = best.column("_score")[0].as_py() / float(weights(counts, rows.lengths, mean)[0])
        frequency = round((self.indexed_documents + 1) / math.exp(rarity) - 0.5)
        return min(max(frequency, 1), self.indexed_documents)

    def least_rarity(self, frequency: int) -> float:
        """Return the least that Lance can take for the rarity of a word that so many rows have."""
        deleted = self.indexed_documents - len(self.row_ids)
        return inverse_document_frequency(self.indexed_documents, frequency + deleted)

    def most_rarity(self, frequency: int) -> float:
        """Return the most that Lance can take for the rarity of a word that so many rows have."""
        return inverse_document_frequency(self.indexed_documents, frequency)


@dataclass(frozen=True, slots=True)
class _Words:
    """The words of a segment of an index.

    Parameters
    ----------
    partitions : tuple of (Fst, ndarray of uint32)
        The numbers of the words, and by number how many rows have each.
    """

    partitions: tuple[tuple[Fst, npt.NDArray[np.uint32]], ...]

    def frequency(self, word: str) -> int:
        """Return how many rows have a word."""
        encoded = word.encode()
        numbers = ((fst.get(encoded), rows) for fst, rows in self.partitions)
        return sum(int(rows[number]) for number, rows in numbers if number is not None)

    @property
    def nbytes(self) -> int:
        return sum(fst.nbytes + rows.nbytes for fst, rows in self.partitions)


def _words(base: BaseTable, uuid: str) -> _Words | None:
    """Return the words of a segment, or None if its files are not as expected. It never changes."""
    # Wrapped, because the cache takes None for a miss.
    return process_cache().get_or_load(
        ("text words", base.namespace, uuid),
        lambda: (_load_words(base, uuid),),
        lambda loaded: loaded[0].nbytes if loaded[0] else 0,
    )[0]


def _load_words(base: BaseTable, uuid: str) -> _Words | None:
    options = library_options(base.store)
    partitions = []
    try:
        for meta in base.store.list(f"_indices/{uuid}"):
            if meta.path.endswith("_tokens.lance"):
                place = f"{base.store.uri}/{meta.path}"
                words = LanceFileReader(place, storage_options=options).read_all().to_table()
                if _STORED_WORDS not in words.column_names:
                    return None
                lists = LanceFileReader(
                    place.replace("_tokens.lance", "_invert.lance"),
                    storage_options=options,
                    columns=["_length"],
                )
                rows = lists.read_all(batch_size=1 << 20).to_table().column("_length").to_numpy()
                partitions.append((Fst(words.column(_STORED_WORDS)[0].as_py(), where=place), rows))
    except BaseException as error:
        if not isinstance(error, LIBRARY_ERRORS) and not is_panic(error):
            raise
        return None  # asked for a score, the library says what is wrong
    return _Words(tuple(partitions))


def text_index(base: BaseTable, column: str, within: frozenset[int] | None = None) -> TextIndex:
    """Return the full-text index of a column of the base table.

    Parameters
    ----------
    within : frozenset of int, optional
        Speak for these fragments only. Default: all that the index covers.

    Raises
    ------
    QueryError
        If there is none, or it is of a kind that cannot be used, saying what helps.
    """
    key = ("text index", base.namespace, base.version, column, within)
    return process_cache().get_or_load(key, lambda: _find(base, column, within), lambda found: found.nbytes)


def _find(base: BaseTable, column: str, within: frozenset[int] | None) -> TextIndex:
    with reading(f"base table version {base.version}", base.uri):
        dataset = base.dataset
        for described in list_indexes(dataset):
            if described.field_names == [column] and described.index_type == _KIND:
                return _open(base, column, described.details, described.segments, within)
    raise QueryError(
        f"column {column!r} has no full-text index, which says how its words are told apart",
        where="column",
        hint=f'Create one: table.create_index("{column}", "INVERTED")',
    )


def _open(
    base: BaseTable,
    column: str,
    details: Mapping[str, Any],
    segments: Sequence[Any],
    within: frozenset[int] | None,
) -> TextIndex:
    if details.get("lance_tokenizer") not in (None, "text") or details.get("document_granularity") not in (
        None,
        "row",
    ):
        raise QueryError(
            f"the full-text index of {column!r} is over JSON or list elements, which cannot be searched",
            where="column",
            hint=f'Create another over texts: table.create_index("{column}", "INVERTED")',
        )
    dataset = base.dataset
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
    words = int(all_lengths.sum())
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
        Tokenizer.of_index(details),
        bool(details.get("with_position")),
        frozenset(covered),
        all_rows[live],
        all_lengths[live],
        len(all_rows),
        words,
        int(all_lengths.max(initial=0)),
        tuple(sorted(uuids)),
    )


def _documents(base: BaseTable, uuid: str) -> tuple[RowIds, npt.NDArray[np.int32]]:
    """Return the rows that a segment of an index knows, and how many words each has. It never changes."""

    def load() -> tuple[RowIds, npt.NDArray[np.int32]]:
        listed = base.store.list(f"_indices/{uuid}")
        row_ids, lengths = [np.zeros(0, dtype=np.uint64)], [np.zeros(0, dtype=np.int32)]
        for meta in listed:
            if meta.path.endswith("_docs.lance"):
                reader = LanceFileReader(
                    f"{base.store.uri}/{meta.path}", storage_options=library_options(base.store)
                )
                documents = reader.read_all(batch_size=1 << 20).to_table()
                words = documents.column("_num_tokens").to_numpy().astype(np.int32)
                row_ids.append(documents.column("_rowid").to_numpy()[words > 0])
                lengths.append(words[words > 0])
        return np.concatenate(row_ids), np.concatenate(lengths)

    return process_cache().get_or_load(
        ("text documents", base.namespace, uuid), load, lambda loaded: loaded[0].nbytes + loaded[1].nbytes
    )
