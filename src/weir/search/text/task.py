"""The part of one source in a text search, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.search.text.bm25 import Statistics
from weir.search.text.match import Node
from weir.search.text.tokenizer import Tokenizer

__all__ = [
    "SCORE",
    "IndexedTextTask",
    "Question",
    "Scores",
    "TextCandidates",
    "TextTask",
    "least_of_best",
]

SCORE = "_score"

Scores = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TextCandidates:
    """The rows of one source that answer a query best.

    Parameters
    ----------
    score : ndarray of float32
        Their scores.
    rows : ndarray of int64
        Where they are, for :meth:`TextTask.fetch`.
    table : Table or None
        The columns of the result, where they have been read with the scores.
    """

    score: npt.NDArray[np.float32]
    rows: npt.NDArray[np.int64]
    table: pa.Table | None = None


class TextTask(Protocol):
    """One source's part of a text search: small, stateless, and it can be pickled."""

    def fetch(self, found: TextCandidates, chosen: npt.NDArray[np.int64]) -> pa.Table:
        """Return the columns of the result of some candidates, by their offset."""
        ...

    def describe(self) -> str:
        """Return one line for people."""
        ...


class IndexedTextTask(TextTask, Protocol):
    """The part of the rows that the base table's index covers."""

    def best(self, others: Scores) -> TextCandidates:
        """Return the best live rows.

        Parameters
        ----------
        others : ndarray of float32
            Scores of the best rows elsewhere. Rows here that are no better than ``k`` of them are of no
            use.
        """
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """What every source is asked.

    Parameters
    ----------
    node : Words, Phrase, AnyOf, Combined or Boosted
        The query, its words known.
    statistics : mapping of str to Statistics
        By column: the corpus statistics of the table.
    tokenizers : mapping of str to Tokenizer
        By column.
    k : int
        Rows to find.
    columns : tuple of str
        Columns of the result.
    filter : str or None
        Only rows that match.
    """

    node: Node
    statistics: Mapping[str, Statistics]
    tokenizers: Mapping[str, Tokenizer]
    k: int
    columns: tuple[str, ...]
    filter: str | None


def least_of_best(scores: Scores, k: int) -> float:
    """Return the score that a row has to have to be among the ``k`` best."""
    return float(np.partition(scores, -k)[-k]) if len(scores) >= k else -np.inf
