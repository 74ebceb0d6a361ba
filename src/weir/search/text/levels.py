"""Generations, and parts of the log, as parts of a text search: several of them as if they were one.

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

from weir.engine.cache import process_cache
from weir.lsm.generation import Generation
from weir.search.chosen_rows import take_numbered
from weir.search.levels import FreshLayer
from weir.search.text.generation_terms import indexed_texts
from weir.search.text.tokenizer import HeldTexts, TextRows, Tokenizer, occurrences, take_texts

__all__ = ["JoinedTexts", "LayersPart", "layers_parts"]

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LayersPart:
    """Generations, or a part of the log. Made by :func:`layers_parts`.

    Parameters
    ----------
    layers : tuple of FreshLayer
        They, and which of their rows count; of each shard oldest first. Rows are numbered one layer after
        the other.
    """

    layers: tuple[FreshLayer, ...]

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the layers; what follows from them is worked out again."""
        return (LayersPart, (self.layers,))

    @property
    def sources(self) -> Iterator[tuple[str, Mask]]:
        """For people: the name of each source, and per row whether it counts."""
        return ((layer.label, layer.live) for layer in self.layers)

    @cached_property
    def live(self) -> Mask:
        """Per row: whether it counts."""
        return _one_after_the_other([layer.live for layer in self.layers])

    @cached_property
    def decided_by(self) -> Hashable:
        """What the rows and ``live`` follow from, for caches."""
        # What the oldest layer of a shard follows from, all others there do.
        oldest = {layer.shard_id: layer.decided_by for layer in reversed(self.layers)}
        return (self.layers[0].namespace, self._identity, tuple(oldest.values()))

    @cached_property
    def _identity(self) -> tuple[Hashable, ...]:
        return tuple(layer.source.identity for layer in self.layers)

    def texts(self, column: str, tokenizer: Tokenizer) -> HeldTexts:
        """Return the words of a column."""
        if len(self.layers) == 1:
            return _texts_of(self.layers[0], column, tokenizer)
        key = ("joined texts", self.layers[0].namespace, self._identity, column, tokenizer)
        return process_cache().get_or_load(
            key, lambda: JoinedTexts(key, self.layers, column, tokenizer), lambda loaded: loaded.nbytes
        )

    def matching(self, filter: str | None) -> Mask:
        """Return, per row, whether it counts and a filter lets it pass."""
        if filter is None:
            return self.live
        return _one_after_the_other([layer.matching(filter) for layer in self.layers])

    def take(self, rows: Rows, columns: Sequence[str]) -> pa.Table:
        """Return some rows, by their offset, which ascends."""
        starts: list[int] = np.cumsum([0, *(len(layer.live) for layer in self.layers[:-1])]).tolist()
        return take_numbered(self.layers, starts, rows, columns)


class JoinedTexts:
    """The texts of several layers, numbered one after the other.

    Parameters
    ----------
    key : Hashable
        What everything that follows from it is cached by.
    layers : sequence of FreshLayer
        The layers. What is held of their texts is left to the process cache.
    column : str
        The column.
    tokenizer : Tokenizer
        Makes the words.
    """

    def __init__(
        self, key: Hashable, layers: Sequence[FreshLayer], column: str, tokenizer: Tokenizer
    ) -> None:
        self._key = key
        self._layers = tuple(layers)
        self._column = column
        self.tokenizer = tokenizer
        self.lengths: npt.NDArray[np.int32] = np.concatenate([one.lengths for one in self._parts()])

    def __len__(self) -> int:
        """Return how many texts there are."""
        return len(self.lengths)

    def _parts(self) -> list[HeldTexts]:
        return [_texts_of(layer, self._column, self.tokenizer) for layer in self._layers]

    def occurrences(self, word: str) -> tuple[Rows, npt.NDArray[np.int32]]:
        """Return the texts that a word occurs in, ascending, and how often it does."""
        return process_cache().get_or_load(
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
        """Bytes it takes in memory, without the texts of the layers."""
        return int(self.lengths.nbytes)


def layers_parts(layers: Sequence[FreshLayer]) -> list[LayersPart]:
    """Return layers as parts of a search: all generations as one, and each part of the log.

    The log would make the one another with every write.
    """
    generations = tuple(layer for layer in layers if isinstance(layer.source, Generation))
    parts = [LayersPart((layer,)) for layer in layers if not isinstance(layer.source, Generation)]
    return [LayersPart(generations), *parts] if generations else parts


def _texts_of(layer: FreshLayer, column: str, tokenizer: Tokenizer) -> HeldTexts:
    return process_cache().get_or_load(
        ("texts", layer.namespace, layer.source.identity, column, tokenizer),
        lambda: _load(layer, column, tokenizer),
        lambda loaded: loaded.nbytes,
    )


def _load(layer: FreshLayer, column: str, tokenizer: Tokenizer) -> HeldTexts:
    source, found = layer.source, None
    if isinstance(source, Generation):
        found = indexed_texts(layer.namespace, source, column, tokenizer)
    return found or TextRows(source.column(column), tokenizer)


def _one_after_the_other(masks: Sequence[Mask]) -> Mask:
    return masks[0] if len(masks) == 1 else np.concatenate(masks)
