"""The words of texts and their positions, as Lance's tokenizer of an index splits them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "AskedTexts",
    "HeldTexts",
    "Occurring",
    "TextRows",
    "Texts",
    "Tokenizer",
    "in_common",
    "joined",
    "occurrences",
    "take_texts",
]

Rows = npt.NDArray[np.int64]

_OPTIONS = (
    "base_tokenizer",
    "language",
    "max_token_length",
    "lower_case",
    "stem",
    "remove_stop_words",
    "custom_stop_words",
    "ascii_folding",
    "min_ngram_length",
    "max_ngram_length",
    "prefix_only",
    "split_identifiers",
    "split_on_numerics",
    "preserve_original",
    "index_operators",
)
_BETWEEN = "qzvxqjkzv"
_LETTERS = "zq"
_TEXTS_AT_ONCE = 2_000


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Lance's tokenizer with the options of an index.

    Parameters
    ----------
    options : tuple of (str, object)
        What Lance's ``tokenize`` takes.
    """

    options: tuple[tuple[str, Any], ...]
    _given: dict[str, Any] = field(init=False, compare=False, repr=False)
    _between: str | None = field(init=False, compare=False, repr=False)
    parts_lines: bool = field(init=False, compare=False, repr=False)
    """Whether the words of several lines are those of each line: lists are searched by this."""

    def __post_init__(self) -> None:
        """Keep the options as Lance takes them."""
        given = {name: list(value) if isinstance(value, tuple) else value for name, value in self.options}
        object.__setattr__(self, "_given", given)
        between = self.words(_BETWEEN)
        object.__setattr__(self, "_between", between[0] if len(between) == 1 else None)
        two = self.words(f"{_LETTERS[0]}\n{_LETTERS[1]}")
        object.__setattr__(self, "parts_lines", two == [self._only_word(one) for one in _LETTERS])

    @classmethod
    def of_index(cls, details: Mapping[str, Any], stop_words: Sequence[str] | None = None) -> Tokenizer:
        """Return the tokenizer of an index, from its details and the stop words that these do not have."""
        given = {**details, **({} if stop_words is None else {"custom_stop_words": list(stop_words)})}
        options = []
        for name in _OPTIONS:
            value = given.get(name)
            if value is not None or name == "max_token_length":
                options.append((name, tuple(value) if isinstance(value, list) else value))
        return cls(tuple(options))

    def tokens(self, text: str) -> list[tuple[str, int]]:
        """Return the words of one text and their positions."""
        return [(token.text, token.position) for token in lance.tokenize(text, **self._given)]

    def words(self, text: str) -> list[str]:
        """Return the words of one text."""
        return [token.text for token in lance.tokenize(text, **self._given)]

    def _only_word(self, text: str) -> str | None:
        words = self.words(text)
        return words[0] if len(words) == 1 else None

    def words_of_each(self, texts: pa.Array) -> list[list[str]]:
        """Return the words of each text; null is a text without words.

        Most tokenizers take a while to start, so many texts are taken as one with a word between them that
        occurs in none. If that is unclear, each is tokenized separately.
        """
        found: list[list[str]] = []
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            part = texts[start : start + _TEXTS_AT_ONCE].to_pylist()
            found += self._together(part) or [self.words(text) if text else [] for text in part]
        return found

    def _together(self, texts: list[str | None]) -> list[list[str]] | None:
        between = self._between
        if between is None or len(texts) < 2:
            return None
        words = self.words(f"\n{_BETWEEN}\n".join(text or "" for text in texts))
        if words.count(between) != len(texts) - 1:
            return None
        found, start = [], 0
        for _ in texts[1:]:
            end = words.index(between, start)
            found.append(words[start:end])
            start = end + 1
        return [*found, words[start:]]


def joined(texts: pa.Array) -> pa.Array:
    r"""Return texts as they are, and each list of texts as one: its elements as lines.

    An index of Lance takes the words of a list as those of one text too.

    Parameters
    ----------
    texts : Array of string, or of lists of strings
        A null, whether a text, a list or an element, has no words.

    Examples
    --------
    >>> joined(pa.array([["red fox", None, "sky"], [], None])).to_pylist()
    ['red fox\nsky', '', None]
    """
    if not pa.types.is_list(texts.type) and not pa.types.is_large_list(texts.type):
        return texts
    elements = texts.flatten()
    sizes = pc.list_value_length(texts).fill_null(0).to_numpy()
    rows = np.repeat(np.arange(len(texts)), sizes)[elements.is_valid().to_numpy(zero_copy_only=False)]
    starts = rows.searchsorted(np.arange(len(texts) + 1)).astype(np.int32)
    elements = elements.drop_null()
    lines = pc.binary_join(
        pa.ListArray.from_arrays(pa.array(starts), elements), pa.scalar("\n", elements.type)
    )
    return pc.if_else(texts.is_valid(), lines, pa.scalar(None, lines.type))


class Texts(Protocol):
    """Texts with the positions of their words."""

    @property
    def lengths(self) -> npt.NDArray[np.int32]:
        """Words of each text."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """Makes the words."""
        ...

    def __len__(self) -> int:
        """Return how many texts there are."""
        ...

    def occurrences(self, word: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
        """Return the texts that a word occurs in, ascending, and how often it does."""
        ...

    def take(self, rows: npt.NDArray[np.int64]) -> pa.Array:
        """Return some of the texts."""
        ...


class HeldTexts(Texts, Protocol):
    """All texts of a source, with all of their words."""

    @property
    def vocabulary(self) -> list[str]:
        """All words, in no order."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes it takes in memory, roughly."""
        ...


class TextRows:
    """Which words occur in some texts, and how often.

    Parameters
    ----------
    texts : Array of string, or of lists of strings
        The texts; null is a text without words.
    tokenizer : Tokenizer
        Makes the words.
    """

    def __init__(self, texts: pa.Array, tokenizer: Tokenizer) -> None:
        texts = joined(texts)
        self.texts = texts
        self.tokenizer = tokenizer
        each = tokenizer.words_of_each(texts)
        sizes = np.fromiter(map(len, each), np.int64, len(each))
        rows = np.repeat(np.arange(len(each)), sizes)
        encoded = pa.array(list(chain.from_iterable(each)), pa.string()).dictionary_encode()
        codes = encoded.indices.to_numpy().astype(np.int64)
        self.vocabulary: list[str] = encoded.dictionary.to_pylist()
        self._number = {word: number for number, word in enumerate(self.vocabulary)}
        pairs, counts = np.unique(codes * max(len(texts), 1) + rows, return_counts=True)
        word, row = np.divmod(pairs, max(len(texts), 1))
        self._rows = row.astype(np.int32)
        self._counts = counts.astype(np.int32)
        self._starts = np.searchsorted(word, np.arange(len(self.vocabulary) + 1))
        self.lengths = sizes.astype(np.int32)

    def __len__(self) -> int:
        """Return how many texts there are."""
        return len(self.texts)

    @property
    def nbytes(self) -> int:
        """Bytes it takes in memory, roughly."""
        arrays = self._rows.nbytes + self._counts.nbytes + self._starts.nbytes + self.lengths.nbytes
        return int(arrays + self.texts.nbytes + 200 * len(self.vocabulary))

    def occurrences(self, word: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
        """Return the texts that a word occurs in, ascending, and how often it does."""
        number = self._number.get(word)
        if number is None:
            return self._rows[:0], self._counts[:0]
        span = slice(int(self._starts[number]), int(self._starts[number + 1]))
        return self._rows[span], self._counts[span]

    def take(self, rows: Rows) -> pa.Array:
        """Return some of the texts."""
        return self.texts.take(pa.array(rows))


class AskedTexts:
    """Texts of which only some words are of interest, which takes least time.

    Parameters
    ----------
    texts : Array of string, or of lists of strings
        The texts; null is a text without words.
    tokenizer : Tokenizer
        Makes the words.
    words : sequence of str
        The words of interest.
    """

    def __init__(self, texts: pa.Array, tokenizer: Tokenizer, words: Sequence[str]) -> None:
        texts = joined(texts)
        self.texts = texts
        self.tokenizer = tokenizer
        each = tokenizer.words_of_each(texts)
        self.lengths = np.fromiter(map(len, each), np.int32, len(each))
        self._counts = {
            word: np.fromiter((one.count(word) for one in each), np.int32, len(each)) for word in words
        }

    def __len__(self) -> int:
        """Return how many texts there are."""
        return len(self.texts)

    def occurrences(self, word: str) -> tuple[Rows, npt.NDArray[np.int32]]:
        """Return the texts that a word of interest occurs in, ascending, and how often it does."""
        counts = self._counts[word]
        (rows,) = counts.nonzero()
        return rows, counts[rows]

    def take(self, rows: Rows) -> pa.Array:
        """Return some of the texts."""
        return self.texts.take(pa.array(rows))


class Occurring:
    """Some rows of several sources, as if they were one.

    Parameters
    ----------
    parts : sequence of Texts
        Texts of the same tokenizer; their rows are numbered one after the other.
    rows : ndarray of int64
        Numbers of the rows, ascending.
    known : mapping
        By word of interest: the numbers of the rows it occurs in, and how often.
    """

    def __init__(
        self,
        parts: Sequence[Texts],
        rows: Rows,
        known: Mapping[str, tuple[Rows, npt.NDArray[np.int32]]],
    ) -> None:
        self._parts = parts
        self._known = known
        self._starts = np.cumsum([0, *(len(part) for part in parts)])
        self.rows = rows
        self.tokenizer = parts[0].tokenizer
        bounds = np.searchsorted(rows, self._starts).tolist()
        self.lengths = np.concatenate(
            [
                part.lengths[rows[low:high] - start]
                for part, start, low, high in zip(
                    parts, self._starts[:-1], bounds[:-1], bounds[1:], strict=True
                )
            ]
        )

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.rows)

    def occurrences(self, word: str) -> tuple[Rows, npt.NDArray[np.int32]]:
        """Return the rows that a word occurs in, as offsets into ``rows``, and how often it does."""
        found, counts = self._known[word]
        here, there = in_common(self.rows, found)
        return here, counts[there]

    def take(self, rows: Rows) -> pa.Array:
        """Return some of the texts."""
        return take_texts(self._parts, self.rows[rows])


def in_common(
    rows: npt.NDArray[Any], others: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return where the numbers are that two arrays, which ascend, have in common: in one and in the other.

    Examples
    --------
    >>> [one.tolist() for one in in_common(np.array([1, 3, 5]), np.array([3, 4, 5, 9]))]
    [[1, 2], [0, 2]]
    """
    if len(rows) > len(others):
        there, here = in_common(others, rows)
        return here, there
    if not len(rows):
        return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp)
    at = np.minimum(others.searchsorted(rows), len(others) - 1)
    (found,) = (others[at] == rows).nonzero()
    return found, at[found]


def occurrences(parts: Sequence[Texts], word: str) -> tuple[Rows, npt.NDArray[np.int32]]:
    """Return the numbers of the rows that a word occurs in, ascending, and how often it does."""
    start = 0
    rows, counts = [], []
    for part in parts:
        found, count = part.occurrences(word)
        if len(found):
            wide = found.astype(np.int64, copy=False)
            rows.append(wide + start if start else wide)
            counts.append(count)
        start += len(part)
    if not rows:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
    return (rows[0], counts[0]) if len(rows) == 1 else (np.concatenate(rows), np.concatenate(counts))


def take_texts(parts: Sequence[Texts], numbers: Rows) -> pa.Array:
    """Return some texts of several sources; ``numbers`` ascend, one source after the other."""
    starts = np.cumsum([0, *(len(part) for part in parts[:-1])])
    of = np.searchsorted(starts, numbers, side="right") - 1
    found = [
        parts[at].take(numbers[of == at] - starts[at]).cast(pa.large_string())
        for at in np.unique(of).tolist()
    ]
    return pa.concat_arrays(found) if found else pa.array([], pa.large_string())
