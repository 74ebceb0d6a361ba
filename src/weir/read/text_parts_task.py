"""Searching the rows that no full-text index covers: their words are in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.read.chosen_rows import take_numbered
from weir.read.text_match import score, words_of
from weir.read.text_parts import TextPart
from weir.read.text_task import Question, TextCandidates, least_of_best
from weir.read.tokens_of_text import Occurring, occurrences

__all__ = ["PartsTextTask"]


@dataclass(frozen=True, slots=True)
class PartsTextTask:
    """Score rows of which the words are in memory.

    Parameters
    ----------
    parts : tuple of TextPart
        The rows.
    question : Question
        What is asked for.
    """

    parts: tuple[TextPart, ...]
    question: Question = field(repr=False)

    def candidates(self) -> TextCandidates:
        """Return the best rows that count."""
        question = self.question
        held = {
            column: [part.texts(column, tokenizer) for part in self.parts]
            for column, tokenizer in question.tokenizers.items()
        }
        known = {
            column: {word: occurrences(held[column], word) for word in words}
            for column, words in words_of(question.node).items()
        }
        starts = self._starts
        having = np.zeros(int(starts[-1]), dtype=bool)
        for words in known.values():
            for numbers, _ in words.values():
                having[numbers] = True
        rows = np.flatnonzero(having)
        texts = {column: Occurring(parts, rows, known[column]) for column, parts in held.items()}
        scores, found = score(question.node, texts, question.statistics)
        found &= self._counted(starts, rows, found)
        own, rows = scores[found].astype(np.float32), rows[found]
        # Cheaper than to sort them all.
        good = own >= least_of_best(own, question.k)
        own, rows = own[good], rows[good]
        best = np.lexsort((rows, -own))[: question.k]
        return TextCandidates(own[best], rows[best])

    @property
    def _starts(self) -> npt.NDArray[np.int64]:
        return np.cumsum([0, *(len(part.live) for part in self.parts)])

    def _counted(
        self, starts: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], found: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        """Return which of the rows found count, and pass the filter."""
        counted = np.zeros(len(rows), dtype=bool)
        bounds = rows.searchsorted(starts).tolist()
        for part, start, low, high in zip(self.parts, starts.tolist(), bounds, bounds[1:], strict=False):
            if low < high and found[low:high].any():
                counted[low:high] = part.matching(self.question.filter)[rows[low:high] - start]
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
            f"{part.label}: score {columns} in memory{where}, "
            f"{np.count_nonzero(~part.live)} of {len(part.live)} rows superseded or deleted"
            for part in self.parts
        )
