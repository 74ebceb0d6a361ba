"""The words of a generation's texts from its own full-text index, which saves tokenizing them."""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.index_list import list_indexes
from weir.engine.logs import get_logger
from weir.errors import CorruptionError, StorageError, WeirError
from weir.format.posting_list import PostingLists
from weir.lsm.generation import Generation
from weir.search.text.segment import TextPartition, stop_words, text_segment
from weir.search.text.tokenizer import TextRows, Tokenizer, joined

__all__ = ["IndexedTexts", "indexed_texts"]

_log = get_logger(__name__)
_KIND = "Inverted"
_WORDS_KNOWN = 4_096
_WHOLE_ROWS = ("row", None)


class IndexedTexts:
    """Which words occur in the texts of a generation, and how often. Made by :func:`indexed_texts`.

    Parameters
    ----------
    generation : Generation
        The generation.
    column : str
        The column.
    tokenizer : Tokenizer
        That of the index.
    partition : TextPartition
        The words.
    postings : PostingLists
        By the number of a word: the offsets of the rows that have it.
    """

    def __init__(
        self,
        generation: Generation,
        column: str,
        tokenizer: Tokenizer,
        partition: TextPartition,
        postings: PostingLists,
    ) -> None:
        self._generation = generation
        self._column = column
        self._words = partition.words
        # Walking through a transducer takes longer than all else of a lookup.
        self._number = lru_cache(_WORDS_KNOWN)(lambda word: partition.words.get(word.encode()))
        self._postings = postings
        self.tokenizer = tokenizer
        self.lengths: npt.NDArray[np.int32] = np.zeros(len(generation.row_ids), dtype=np.int32)
        self.lengths[generation.row_ids.searchsorted(partition.row_ids)] = partition.lengths

    def __len__(self) -> int:
        """Return how many texts there are."""
        return len(self.lengths)

    @property
    def nbytes(self) -> int:
        """Bytes it takes in memory."""
        return self._words.nbytes + self._postings.nbytes + int(self.lengths.nbytes)

    def occurrences(self, word: str) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Return the texts that a word occurs in, ascending, and how often it does."""
        postings, number = self._postings, self._number(word)
        low, high = (0, 0) if number is None else postings.starts[number : number + 2].tolist()
        return postings.documents[low:high], postings.counts[low:high]

    def take(self, rows: npt.NDArray[np.int64]) -> pa.Array:
        """Return some of the texts."""
        return self._texts.take(pa.array(rows))

    @cached_property
    def vocabulary(self) -> list[str]:
        """All words, in no order."""
        return TextRows(self._texts, self.tokenizer).vocabulary

    @cached_property
    def _texts(self) -> pa.Array:
        # Only phrases and fuzzy words are searched for in the texts themselves.
        return joined(self._generation.column(self._column))


def indexed_texts(
    namespace: str, generation: Generation, column: str, tokenizer: Tokenizer
) -> IndexedTexts | None:
    """Return the words of a generation's texts, or None if it has no index with them.

    Parameters
    ----------
    namespace : str
        Identity of the table, for caches.
    tokenizer : Tokenizer
        How texts are tokenized; an index with other rules is of no use.
    """
    path = _segment_of(namespace, generation, column, tokenizer)
    if path is None:
        return None
    segment = text_segment(generation.store, namespace, path)
    if segment is None or len(segment.partitions) != 1:
        return None
    (partition,) = segment.partitions
    try:
        postings = partition.all_postings()
    except CorruptionError as error:
        _warn_of(generation, path, error)
        return None
    return _by_offset(generation, column, tokenizer, partition, postings)


def _segment_of(namespace: str, generation: Generation, column: str, tokenizer: Tokenizer) -> str | None:
    """Return where the only segment of the index is, if that covers the whole generation."""
    dataset, columns = generation.dataset, generation.columns
    if columns.is_cast(column):
        return None
    own = columns.source_name(column)
    for described in list_indexes(dataset) if own is not None else ():
        if described.field_names != [own] or described.index_type != _KIND:
            continue
        details, segments = described.details, described.segments
        if len(segments) != 1 or details.get("document_granularity") not in _WHOLE_ROWS:
            continue
        covered = {one.fragment_id for one in dataset.get_fragments()} <= set(segments[0].fragment_ids)
        path = f"{generation.path}/_indices/{segments[0].uuid}"
        if not covered:
            continue
        try:
            words = stop_words(generation.store, namespace, path)
        except (CorruptionError, StorageError) as error:
            _warn_of(generation, path, error)
            continue
        if Tokenizer.of_index(details, words) == tokenizer:
            return path
    return None


def _warn_of(generation: Generation, path: str, error: WeirError) -> None:
    """Report an index that cannot be read: the texts hold the same information."""
    _log.warning(
        "generation.text_index_damaged",
        shard=str(generation.shard_id),
        generation=generation.flushed.generation,
        where=f"{generation.store.uri}/{path}",
        error=error.message,
    )


def _by_offset(
    generation: Generation,
    column: str,
    tokenizer: Tokenizer,
    partition: TextPartition,
    postings: PostingLists,
) -> IndexedTexts | None:
    """Return the words with offsets of rows for the numbers that the index gives them."""
    row_ids, known = generation.row_ids, partition.row_ids
    if not len(known) or not (row_ids[1:] > row_ids[:-1]).all() or not (known[1:] > known[:-1]).all():
        return None
    offsets = row_ids.searchsorted(known)
    if not np.array_equal(row_ids[np.minimum(offsets, len(row_ids) - 1)], known):
        return None  # it knows rows that are deleted
    documents = offsets.astype(np.int32)[postings.documents]
    moved = PostingLists(documents, postings.counts, postings.starts)
    return IndexedTexts(generation, column, tokenizer, partition, moved)
