"""Scoring the rows of the base table by the posting lists of its full-text index.

Posting lists say how often a row has a word and how many words it has, which is all that a score is made of.
So every row that may be among the best is scored, and no text is read. Where words are so common that this
takes longer than Lance, which passes over most of their rows, :class:`IndexTextTask` is used instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.table import BaseTable
from weir.lsm.damage import reading
from weir.lsm.deletion_mask import DeletionMask
from weir.lsm.rows_by_id import take_row_ids
from weir.search.text.index import Occurrences, TextIndex, text_index
from weir.search.text.match import score, words_of
from weir.search.text.pruning import best_candidates
from weir.search.text.task import Question, Scores, TextCandidates, least_of_best
from weir.search.text.tokenizer import Tokenizer, in_common, joined

RowIds = npt.NDArray[np.uint64]

__all__ = ["MOST_POSTINGS", "PostingsTextTask"]

MOST_POSTINGS = 100_000
"""Of how many rows, those that have several words as often as they do, it takes no longer than Lance."""

_MORE = 4


class _PostedTexts:
    """Some rows of an index.

    Parameters
    ----------
    index : TextIndex
        The index.
    known : mapping
        By word of interest: where it occurs.
    row_ids : ndarray of uint64
        The rows, ascending; each has one of the words.
    """

    def __init__(self, index: TextIndex, known: Mapping[str, Occurrences], row_ids: RowIds) -> None:
        self._index = index
        self._known = known
        self.row_ids = row_ids
        self.lengths = np.zeros(len(row_ids), dtype=np.int32)
        self._common = {word: in_common(row_ids, one.row_ids) for word, one in known.items()}
        for word, (here, there) in self._common.items():
            self.lengths[here] = known[word].lengths[there]

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.row_ids)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the index."""
        return self._index.tokenizer

    def occurrences(self, word: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Return the rows that a word occurs in, as offsets, and how often it does."""
        here, there = self._common[word]
        return here, self._known[word].counts[there]

    def take(self, rows: npt.NDArray[np.int64]) -> pa.Array:
        """Return some of the texts."""
        base, column = self._index.base, self._index.column
        with reading(f"base table version {base.version}", base.uri):
            texts = take_row_ids(base.dataset, self.row_ids[rows].astype(np.int64), [column])
        return joined(texts.column(0).combine_chunks())


@dataclass(frozen=True, slots=True)
class PostingsTextTask:
    """Search the rows of the base table that its full-text index covers.

    Parameters
    ----------
    base : BaseTable
        The base table.
    fragments : frozenset of int
        Its fragments that are covered.
    column : str
        The column that is searched.
    question : Question
        The query; it has no filter.
    mask : DeletionMask
        Rows that are dead: replaced or deleted by newer ones.
    """

    base: BaseTable = field(repr=False)
    fragments: frozenset[int] = field(repr=False)
    column: str
    question: Question = field(repr=False)
    mask: DeletionMask = field(repr=False)

    def best(self, others: Scores) -> TextCandidates:
        """Return the best live rows."""
        question = self.question
        index = text_index(self.base, self.column, self.fragments)
        known = {}
        for word in words_of(question.node).get(self.column, ()):
            occurs = index.occurrences(word)
            assert occurs is not None, "planned for an index that can be read"
            known[word] = occurs

        def best(row_ids: RowIds) -> TextCandidates:
            texts = _PostedTexts(index, known, row_ids)
            every, found = score(question.node, {self.column: texts}, question.statistics)
            return self._best_counted(every.astype(np.float32), found, row_ids, others)

        lists = {word: (one.row_ids, one.counts) for word, one in known.items()}
        shortest = min((int(one.lengths.min(initial=1)) for one in known.values()), default=1)
        return best_candidates(
            question.node,
            {self.column: lists},
            question.statistics,
            {self.column: shortest},
            best,
            question.k,
            others,
        )

    def _best_counted(
        self, scores: Scores, found: npt.NDArray[np.bool_], row_ids: RowIds, others: Scores
    ) -> TextCandidates:
        """Return the best of some live rows."""
        k = self.question.k
        rows = np.flatnonzero(found & (scores >= least_of_best(others, k)))
        want = k
        while True:
            best = rows[scores[rows] >= least_of_best(scores[rows], want)]
            # Few of the best are replaced or deleted, most often.
            counted = best[~self.mask.contains(row_ids[best])]
            if len(counted) >= k or len(best) == len(rows):
                break
            want *= _MORE
        own_ids, own = row_ids[counted].astype(np.int64), scores[counted]
        order = np.lexsort((own_ids, -own))[:k]
        return TextCandidates(own[order], own_ids[order])

    def fetch(self, found: TextCandidates, chosen: npt.NDArray[np.int64]) -> pa.Table:
        """Return the columns of the result of some candidates."""
        with reading(f"base table version {self.base.version}", self.base.uri):
            return take_row_ids(self.base.dataset, found.rows[chosen], self.question.columns)

    def describe(self) -> str:
        """Return one line for people."""
        return (
            f"base table version {self.base.version}: posting lists of the full-text index of {self.column}, "
            f"{len(self.mask)} rows superseded or deleted"
        )
