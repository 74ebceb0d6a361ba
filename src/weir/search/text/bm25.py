"""BM25: how well a text answers words, given how common they are in all texts that count.

The formula and its constants are those of Lance, so that an index of everything gives the same scores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["K1", "B", "Statistics", "inverse_document_frequency", "weight", "weights"]

K1 = 1.2
B = 0.75


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is common in the texts of one column.

    Parameters
    ----------
    documents : int
        Texts that have words.
    words : int
        Their words, with repetitions.
    frequencies : mapping of str to int
        How many of the texts have a word, for the words of a query.
    """

    documents: int
    words: int
    frequencies: Mapping[str, int] = field(default_factory=dict)

    @property
    def mean_length(self) -> float:
        """Words per text."""
        return self.words / max(self.documents, 1)

    def idf(self, word: str) -> float:
        """Return the inverse document frequency of a word."""
        return inverse_document_frequency(self.documents, self.frequencies.get(word, 0))


def inverse_document_frequency(documents: int, frequency: float) -> float:
    """Return how much a word tells that occurs in ``frequency`` of ``documents`` texts.

    Examples
    --------
    >>> round(inverse_document_frequency(10, 1), 4)
    1.9924
    """
    return math.log1p((documents - frequency + 0.5) / (frequency + 0.5))


def weights(
    counts: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32], mean_length: float
) -> npt.NDArray[np.float64]:
    """Return by what a word's inverse document frequency is multiplied in each text.

    Parameters
    ----------
    counts : ndarray of int32
        How often the word occurs in each text.
    lengths : ndarray of int32
        Words of each text.
    mean_length : float
        Words per text on average.
    """
    found: npt.NDArray[np.float64] = counts * (K1 + 1) / (counts + K1 * (1 - B + B * lengths / mean_length))
    return found


def weight(count: float, length: float, mean_length: float) -> float:
    """Return the weight of a word in one text, as :func:`weights` does for many."""
    return count * (K1 + 1) / (count + K1 * (1 - B + B * length / mean_length))
