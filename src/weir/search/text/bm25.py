"""BM25: how well a text matches words, given their frequency in all live texts.

The formula is that of Lance, and so are the default constants: so that an index of everything gives the same
scores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["DEFAULT", "Constants", "Statistics", "inverse_document_frequency"]


@dataclass(frozen=True, slots=True)
class Constants:
    """What BM25 is set by.

    Parameters
    ----------
    k1 : float
        How much more a word counts that occurs more often; at least 0, where it counts once. Default 1.2.
    b : float
        How much longer texts are held against words, from 0 to 1. Default 0.75.
    """

    k1: float = 1.2
    b: float = 0.75

    def weights(
        self, counts: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32], mean_length: float
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
        by_length = 1 - self.b + self.b * lengths / mean_length
        found: npt.NDArray[np.float64] = counts * (self.k1 + 1) / (counts + self.k1 * by_length)
        return found

    def weight(self, count: float, length: float, mean_length: float) -> float:
        """Return the weight of a word in one text, as :meth:`weights` does for many."""
        return count * (self.k1 + 1) / (count + self.k1 * (1 - self.b + self.b * length / mean_length))

    def most_weight(self) -> float:
        """Return what weights come near to, the more often a word occurs."""
        return self.k1 + 1


DEFAULT = Constants()
"""The constants of Lance."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Corpus statistics over the texts of one column.

    Parameters
    ----------
    documents : int
        Texts that have words.
    words : int
        Their words, with repetitions.
    frequencies : mapping of str to int
        How many of the texts have a word, for the words of a query.
    constants : Constants
        What texts of the column are scored by.
    """

    documents: int
    words: int
    frequencies: Mapping[str, int] = field(default_factory=dict)
    constants: Constants = DEFAULT

    @property
    def mean_length(self) -> float:
        """Words per text; 1 where no text has words, though rows that were replaced may."""
        return self.words / self.documents if self.documents else 1.0

    def idf(self, word: str) -> float:
        """Return the inverse document frequency of a word."""
        return inverse_document_frequency(self.documents, self.frequencies.get(word, 0))

    def weights(
        self, counts: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.float64]:
        """Return by what a word's inverse document frequency is multiplied in each of some texts."""
        return self.constants.weights(counts, lengths, self.mean_length)

    def weight(self, count: float, length: float) -> float:
        """Return the weight of a word in one text, as :meth:`weights` does for many."""
        return self.constants.weight(count, length, self.mean_length)


def inverse_document_frequency(documents: int, frequency: float) -> float:
    """Return the weight of a word that occurs in ``frequency`` of ``documents`` texts.

    Examples
    --------
    >>> round(inverse_document_frequency(10, 1), 4)
    1.9924
    """
    return math.log1p((documents - frequency + 0.5) / (frequency + 0.5))
