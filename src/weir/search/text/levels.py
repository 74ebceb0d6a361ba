"""Generations and parts of the log as parts of a text search, several of them treated as one.

A search that asked every generation for every word would cost more with every flush. Where a word occurs in
generations that follow each other is put together once, and kept in the process cache.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.lsm.generation import Generation
from weir.lsm.levels import Level
from weir.search.chosen_rows import take_numbered
from weir.search.text.generation_terms import indexed_texts
from weir.search.text.tokenizer import HeldTexts, TextRows, Tokenizer, occurrences, take_texts

__all__ = ["JoinedTexts", "LevelsPart", "levels_parts"]

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LevelsPart:
    """Generations, or a part of the log. Made by :func:`levels_parts`.

    Parameters
    ----------
    levels : tuple of Level
        They, and which of their rows are live; of each shard oldest first. Rows are numbered one level after
        the other.
    """

    levels: tuple[Level, ...]

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the levels; what follows from them is worked out again."""
        return (LevelsPart, (self.levels,))

    @property
    def sources(self) -> Iterator[tuple[str, Mask]]:
        """For people: the name of each source, and per row whether it counts."""
        return ((level.label, level.live) for level in self.levels)

    @cached_property
    def live(self) -> Mask:
        """Per row: whether it counts."""
        return _one_after_the_other([level.live for level in self.levels])

    @cached_property
    def decided_by(self) -> Hashable:
        """What the rows and ``live`` follow from, for caches."""
        # What the oldest level of a shard follows from, all others there do.
        oldest = {level.shard_id: level.decided_by for level in reversed(self.levels)}
        return (self.levels[0].namespace, self._identity, tuple(oldest.values()))

    @cached_property
    def _identity(self) -> tuple[Hashable, ...]:
        return tuple(level.source.identity for level in self.levels)

    def texts(self, column: str, tokenizer: Tokenizer) -> HeldTexts:
        """Return the words of a column."""
        if len(self.levels) == 1:
            return _texts_of(self.levels[0], column, tokenizer)
        key = ("joined texts", self.levels[0].namespace, self._identity, column, tokenizer)
        return self.levels[0].engine.cache.get_or_load(
            key, lambda: JoinedTexts(key, self.levels, column, tokenizer), lambda loaded: loaded.nbytes
        )

    def matching(self, filter: str | None) -> Mask:
        """Return, per row, whether it counts and a filter lets it pass."""
        if filter is None:
            return self.live
        return _one_after_the_other([level.matching(filter) for level in self.levels])

    def take(self, rows: Rows, columns: Sequence[str]) -> pa.Table:
        """Return some rows, by their offset, which ascends."""
        starts: list[int] = np.cumsum([0, *(len(level.live) for level in self.levels[:-1])]).tolist()
        return take_numbered(self.levels, starts, rows, columns)


class JoinedTexts:
    """The texts of several levels, numbered one after the other.

    Parameters
    ----------
    key : Hashable
        What everything that follows from it is cached by.
    levels : sequence of Level
        The levels. The process cache decides what of their texts stays in memory.
    column : str
        The column.
    tokenizer : Tokenizer
        Makes the words.
    """

    def __init__(self, key: Hashable, levels: Sequence[Level], column: str, tokenizer: Tokenizer) -> None:
        self._key = key
        self._levels = tuple(levels)
        self._column = column
        self.tokenizer = tokenizer
        self.lengths: npt.NDArray[np.int32] = np.concatenate([one.lengths for one in self._parts()])

    def __len__(self) -> int:
        """Return how many texts there are."""
        return len(self.lengths)

    def _parts(self) -> list[HeldTexts]:
        return [_texts_of(level, self._column, self.tokenizer) for level in self._levels]

    def occurrences(self, word: str) -> tuple[Rows, npt.NDArray[np.int32]]:
        """Return the texts that a word occurs in, ascending, and how often it does."""
        return self._levels[0].engine.cache.get_or_load(
            ("occurrences", self._key, word),
            lambda: self._occurrences(word),
            lambda loaded: loaded[0].nbytes + loaded[1].nbytes,
        )

    def _occurrences(self, word: str) -> tuple[Rows, npt.NDArray[np.int32]]:
        rows, counts = occurrences(self._parts(), word)
        # They may be a part of something larger, which would be held as long.
        return rows, counts.copy()

    def take(self, rows: Rows) -> pa.Array:
        """Return some of the texts."""
        return take_texts(self._parts(), rows)

    @property
    def vocabulary(self) -> list[str]:
        """All words, in no order."""
        return list({word for one in self._parts() for word in one.vocabulary})

    @property
    def nbytes(self) -> int:
        """Bytes it takes in memory, without the texts of the levels."""
        return int(self.lengths.nbytes)


def levels_parts(levels: Sequence[Level]) -> list[LevelsPart]:
    """Return levels as parts of a search: all generations as one, and each part of the log.

    The log would make the one another with every write.
    """
    generations = tuple(level for level in levels if isinstance(level.source, Generation))
    parts = [LevelsPart((level,)) for level in levels if not isinstance(level.source, Generation)]
    return [LevelsPart(generations), *parts] if generations else parts


def _texts_of(level: Level, column: str, tokenizer: Tokenizer) -> HeldTexts:
    return level.engine.cache.get_or_load(
        ("texts", level.namespace, level.source.identity, column, tokenizer),
        lambda: _load(level, column, tokenizer),
        lambda loaded: loaded.nbytes,
    )


def _load(level: Level, column: str, tokenizer: Tokenizer) -> HeldTexts:
    source, found = level.source, None
    if isinstance(source, Generation):
        found = indexed_texts(level.namespace, source, column, tokenizer)
    return found or TextRows(source.column(column), tokenizer)


def _one_after_the_other(masks: Sequence[Mask]) -> Mask:
    return masks[0] if len(masks) == 1 else np.concatenate(masks)
