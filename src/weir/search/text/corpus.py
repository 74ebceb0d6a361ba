"""Corpus statistics over the live rows of a text column.

They are sums: what the base table's index knows of its live rows, and the words of all newer rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.errors import QueryError
from weir.lsm.deletion_mask import DeletionMask
from weir.lsm.levels import Level
from weir.search.text.bm25 import DEFAULT, Constants, Statistics
from weir.search.text.edit_distance import words_within
from weir.search.text.index import TextIndex
from weir.search.text.lance_query import fuzzy_for_lance
from weir.search.text.query import MatchQuery
from weir.search.text.tokenizer import HeldTexts, TextRows, Tokenizer
from weir.search.text.unindexed_parts import TextPart, totals

__all__ = ["Corpus"]

_ROW_ID = "_rowid"


class Corpus:
    """Corpus statistics over the live rows of one text column, wherever these lie."""

    def __init__(
        self,
        index: TextIndex,
        mask: DeletionMask,
        levels: Sequence[Level],
        parts: Sequence[TextPart],
        constants: Constants = DEFAULT,
    ) -> None:
        self.index = index
        self._constants = constants
        self._mask = mask
        self._key: Hashable = (*index.key, tuple(level.source.identity for level in levels))
        self._given_parts = parts
        self._frequencies: dict[str, int] = {}
        self._in_index: dict[str, int] = {}

    # Read only for words that are not known yet.
    @cached_property
    def _parts(self) -> list[tuple[HeldTexts, npt.NDArray[np.bool_], Hashable]]:
        index = self.index
        return [
            (part.texts(index.column, index.tokenizer), part.live, (part.decided_by, index.column))
            for part in self._given_parts
        ]

    def add(self, word: str, source: str) -> int:
        """Take a word into the statistics, and return how many texts have it."""
        if word not in self._frequencies:
            found = self.index.base.engine.cache.get_or_load(
                ("frequency", self._key, word), lambda: self._count(word, source), lambda _: 64
            )
            self._frequencies[word], self._in_index[word] = found
        return self._frequencies[word]

    def _count(self, word: str, source: str) -> tuple[int, int]:
        having = self.index.rows_having(word, source)

        def occurring(texts: HeldTexts, counted: npt.NDArray[np.bool_]) -> int:
            return int(np.count_nonzero(counted[texts.occurrences(word)[0]]))

        newer = sum(occurring(texts, counted) for texts, counted, _ in self._parts)
        return len(having) - self._mask.count(having) + newer, len(having)

    @property
    def postings(self) -> int | None:
        """How many rows of the index have the words that were taken in, added up; None if not to be read."""
        return sum(self._in_index.values()) if self.index.is_readable else None

    def statistics(self) -> Statistics:
        """Return the statistics, including the words that were added."""
        documents, words = self.index.base.engine.cache.get_or_load(
            ("documents and words", self._key), self._total, lambda _: 64
        )
        return Statistics(documents, words, self._frequencies, self._constants)

    def _total(self) -> tuple[int, int]:
        lengths = self.index.lengths
        documents, words = len(lengths), int(lengths.sum())
        replaced = self.index.lengths_of(self._mask.row_ids)
        documents, words = documents - len(replaced), words - int(replaced.sum())
        for texts, counted, decided_by in self._parts:
            more = totals(self.index.base.engine.cache, texts, counted, decided_by)
            documents, words = documents + more.documents, words + more.words
        return documents, words

    def bounds(self, statistics: Statistics) -> tuple[float, float]:
        """Return how many times Lance's score of a row the row's score can be, at least and at most."""
        index = self.index
        if not index.indexed_documents or not statistics.documents:
            return 1.0, 1.0
        # Weights differ by how often a word occurs and how long a text is, each one way: so that of all that
        # there may be, once or very often and in the shortest or the longest text, one differs most.
        indexed_mean = index.indexed_words / index.indexed_documents
        constants = statistics.constants
        extremes = [constants.most_weight() / DEFAULT.most_weight()] + [
            statistics.weight(1, length) / DEFAULT.weight(1, length, indexed_mean)
            for length in (0, index.longest)
        ]
        low, high = min(extremes), max(extremes)
        in_index = [(word, frequency) for word, frequency in self._in_index.items() if frequency]
        ratios = [
            (
                statistics.idf(word) / index.most_idf(frequency),
                statistics.idf(word) / index.least_idf(frequency),
            )
            for word, frequency in in_index
        ]
        # Lance's scores are rounded to float32.
        return (
            low * min((least for least, _ in ratios), default=1.0) * (1 - 1e-5),
            high * max((most for _, most in ratios), default=1.0) * (1 + 1e-5),
        )

    def like(self, word: str, query: MatchQuery, distance: int) -> tuple[str, ...]:
        """Return the words of live texts which a fuzzy word matches, in alphabetical order.

        Raises
        ------
        QueryError
            Lance cannot look for words near this one.
        """
        if len(self.index.row_ids) and _library_tokenizer().words(word) != [word]:
            raise QueryError(
                f"the word {word!r:.60} has signs in it, at which the library parts fuzzy words whatever the "
                f"index of {query.column!r} does",
                where="query",
                hint="Ask for it as it is, with fuzziness=0",
            )
        near: set[str] = set()
        asked = fuzzy_for_lance(word, query, distance)
        found = self.index.find(asked, [self.index.column])
        known = self.index.knows(found.column(_ROW_ID).to_numpy())
        texts = found.column(self.index.column).combine_chunks().filter(pa.array(known))
        sources: list[HeldTexts] = [
            TextRows(texts, self.index.tokenizer),
            *(one for one, _, _ in self._parts),
        ]
        for source in sources:
            near.update(words_within(source.vocabulary, word, distance, query.prefix_length))
        chosen: list[str] = []
        for one in sorted(near, key=str.encode):
            if self.add(one, one) > 0:
                chosen.append(one)
                if len(chosen) == query.max_expansions:
                    break
        return tuple(chosen)


@cache
def _library_tokenizer() -> Tokenizer:
    """Return how the library parts the words of a fuzzy query."""
    off = ("lower_case", "stem", "remove_stop_words", "ascii_folding")
    return Tokenizer(
        (("base_tokenizer", "simple"), ("max_token_length", None), *((name, False) for name in off))
    )
