"""Searching the rows without a full-text index, whose words are in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.search.chosen_rows import take_numbered
from weir.search.text.match import score, words_of
from weir.search.text.pruning import best_candidates
from weir.search.text.task import Question, Scores, TextCandidates, least_of_best
from weir.search.text.tokenizer import Occurring, occurrences
from weir.search.text.unindexed_parts import TextPart

__all__ = ["PartsTextTask"]

_NO_SCORES: Scores = np.zeros(0, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class PartsTextTask:
    """Score rows whose words are in memory.

    Parameters
    ----------
    parts : tuple of TextPart
        The rows.
    question : Question
        The query.
    """

    parts: tuple[TextPart, ...]
    question: Question = field(repr=False)

    def candidates(self) -> TextCandidates:
        """Return the best live rows."""
        question = self.question
        held = {
            column: [part.texts(column, tokenizer) for part in self.parts]
            for column, tokenizer in question.tokenizers.items()
        }
        known = {
            column: {word: occurrences(held[column], word) for word in words}
            for column, words in words_of(question.node).items()
        }
        masks: dict[int, npt.NDArray[np.bool_]] = {}

        def best(rows: npt.NDArray[np.int64]) -> TextCandidates:
            texts = {column: Occurring(parts, rows, known[column]) for column, parts in held.items()}
            scores, found = score(question.node, texts, question.statistics)
            found &= self._counted(masks, rows, found)
            own, rows = scores[found].astype(np.float32), rows[found]
            # Cheaper than to sort them all.
            good = own >= least_of_best(own, question.k)
            own, rows = own[good], rows[good]
            chosen = np.lexsort((rows, -own))[: question.k]
            return TextCandidates(own[chosen], rows[chosen])

        shortest = dict.fromkeys(held, 1)
        return best_candidates(
            question.node, known, question.statistics, shortest, best, question.k, _NO_SCORES
        )

    @property
    def _starts(self) -> npt.NDArray[np.int64]:
        return np.cumsum([0, *(len(part.live) for part in self.parts)])

    def _counted(
        self,
        masks: dict[int, npt.NDArray[np.bool_]],
        rows: npt.NDArray[np.int64],
        found: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.bool_]:
        """Return which of the rows found count, and pass the filter.

        Parameters
        ----------
        masks : dict
            By part: the statistics of all of its rows.
        """
        starts = self._starts
        counted = np.zeros(len(rows), dtype=bool)
        bounds = rows.searchsorted(starts).tolist()
        for at, (start, low, high) in enumerate(zip(starts.tolist(), bounds, bounds[1:], strict=False)):
            if low < high and found[low:high].any():
                if at not in masks:
                    masks[at] = self.parts[at].matching(self.question.filter)
                counted[low:high] = masks[at][rows[low:high] - start]
        return counted

    def fetch(self, found: TextCandidates, chosen: npt.NDArray[np.int64]) -> pa.Table:
        """Return the columns of the result of some candidates."""
        starts = self._starts[:-1].tolist()
        return take_numbered(self.parts, starts, found.rows[chosen], self.question.columns)

    def describe(self) -> str:
        """Return one line per part for people."""
        where = f" where {self.question.filter}" if self.question.filter else ""
        columns = ", ".join(self.question.tokenizers)
        return "\n  ".join(
            f"{label}: score {columns} in memory{where}, "
            f"{np.count_nonzero(~live)} of {len(live)} rows superseded or deleted"
            for part in self.parts
            for label, live in part.sources
        )
