"""A segment of a full-text index, read from its files: rows, words and posting lists.

Its files never change, so what is read from them is kept in the process cache. Unexpected files are left to
the library, which says what is wrong with them, or can read what Weir cannot.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.file import LanceFileReader

from weir.base.dataset import library_options
from weir.base.library_errors import LIBRARY_ERRORS, is_panic
from weir.base.open_files import OpenFile
from weir.engine.concurrent_map import ask_both, concurrent_map
from weir.engine.context import EngineContext
from weir.errors import CorruptionError
from weir.format.fst import Fst
from weir.format.posting_list import BLOCK_ROWS, TAIL_CODEC, PostingLists, decode
from weir.lsm.damage import reading
from weir.storage.interface import ObjectStore

__all__ = ["TextPartition", "TextSegment", "stop_words", "text_segment"]

RowIds = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int32]

_METADATA = "metadata.lance"
_ROWS = "_docs.lance"
_STORED_WORDS = "_token_fst_bytes"
_LISTS = ["_posting", "_length"]


class _Lists:
    """A file of posting lists, to be read by many threads."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file

    def of(self, number: int) -> pa.Table:
        """Return the list of one word."""
        with self._file.reader() as reader:
            found = reader.take_rows([number])
        return found.to_table()

    def all(self) -> pa.Table:
        """Return the lists of all words."""
        with self._file.reader() as reader:
            found = reader.read_all(batch_size=1 << 20)
        return found.to_table()


@dataclass(frozen=True, slots=True)
class TextPartition:
    """A part of a segment, with its own rows and words.

    Parameters
    ----------
    place : str
        Where it is.
    row_ids : ndarray of uint64
        By the number of a row: its id.
    lengths : ndarray of int32
        By the number of a row: its words.
    words : Fst
        The numbers of the words.
    """

    place: str
    row_ids: RowIds = field(repr=False)
    lengths: Counts = field(repr=False)
    words: Fst = field(repr=False)
    _lists: _Lists = field(repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes it takes in memory."""
        return self.words.nbytes + self.row_ids.nbytes + self.lengths.nbytes

    def postings(self, word: str) -> PostingLists | None:
        """Return the list of a word; None if no row has it."""
        number = self.words.get(word.encode())
        if number is None:
            return None
        with reading("a posting list of a full-text index", self.place):
            return self._decoded(self._lists.of(number))

    def all_postings(self) -> PostingLists:
        """Return the lists of all words, by their numbers."""
        with reading("the posting lists of a full-text index", self.place):
            return self._decoded(self._lists.all())

    def _decoded(self, lists: pa.Table) -> PostingLists:
        blocks = lists.column("_posting").combine_chunks()
        found = decode(blocks, lists.column("_length").to_numpy(), where=self.place)
        if len(found.documents) and not 0 <= found.documents.min() <= found.documents.max() < len(
            self.row_ids
        ):
            raise CorruptionError(
                f"a posting list names rows beyond the {len(self.row_ids)} of the full-text index",
                where=self.place,
                hint="Create the index anew",
            )
        return found


@dataclass(frozen=True, slots=True)
class TextSegment:
    """A segment of a full-text index. Made by :func:`text_segment`.

    Parameters
    ----------
    key : tuple
        Its key in the cache.
    partitions : tuple of TextPartition
        Its parts.
    engine : EngineContext
        The engine whose cache holds what is read from it.
    """

    key: Hashable
    partitions: tuple[TextPartition, ...]
    engine: EngineContext = field(repr=False, compare=False)

    @property
    def nbytes(self) -> int:
        """Bytes it takes in memory."""
        return sum(part.nbytes for part in self.partitions)

    def occurrences(self, word: str) -> tuple[RowIds, Counts, Counts]:
        """Return the ids of the rows that have a word, how often they do, and how many words they have."""
        return self.engine.cache.get_or_load(
            (self.key, word),
            lambda: self._occurrences(word),
            lambda loaded: sum(array.nbytes for array in loaded),
        )

    def _occurrences(self, word: str) -> tuple[RowIds, Counts, Counts]:
        row_ids, counts, lengths = [_NO_ROWS], [_NO_COUNTS], [_NO_COUNTS]
        for part in self.partitions:
            lists = part.postings(word)
            if lists is not None:
                row_ids.append(part.row_ids[lists.documents])
                counts.append(lists.counts)
                lengths.append(part.lengths[lists.documents])
        return np.concatenate(row_ids), np.concatenate(counts), np.concatenate(lengths)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A segment if its files are as expected, and the stop words that it says it was made with."""

    segment: TextSegment | None
    stop_words: tuple[str, ...] | None


_NO_ROWS: RowIds = np.zeros(0, dtype=np.uint64)
_NO_COUNTS: Counts = np.zeros(0, dtype=np.int32)


def text_segment(store: ObjectStore, namespace: str, path: str) -> TextSegment | None:
    """Return a segment, or None if its files are not as expected.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    namespace : str
        Identity of the table, for caches.
    path : str
        Its directory in the store.
    """
    try:
        return _loaded(store, namespace, path).segment
    except BaseException as error:
        if not _is_of_the_library(error):
            raise
        return None  # not remembered: the store may only have failed


def stop_words(store: ObjectStore, namespace: str, path: str) -> tuple[str, ...] | None:
    """Return the stop words that a segment was made with, of which the library's details say nothing.

    None if they are those of its language. Parameters are those of :func:`text_segment`.

    Raises
    ------
    CorruptionError
        If the file that names them is missing or cannot be decoded.
    StorageError
        If the store failed.
    """
    with reading("the full-text index", f"{store.uri}/{path}"):
        return _loaded(store, namespace, path).stop_words


def _is_of_the_library(error: BaseException) -> bool:
    return isinstance(error, (*LIBRARY_ERRORS, KeyError)) or is_panic(error)


def _loaded(store: ObjectStore, namespace: str, path: str) -> _Loaded:
    key = ("text segment", namespace, path)
    return store.engine.cache.get_or_load(
        key,
        lambda: _load(store, path, key),
        lambda loaded: 256 if loaded.segment is None else loaded.segment.nbytes,
    )


def _load(store: ObjectStore, path: str, key: Hashable) -> _Loaded:
    options = library_options(store)

    def opened(place: str, columns: list[str] | None = None) -> LanceFileReader:
        return LanceFileReader(f"{store.uri}/{place}", storage_options=options, columns=columns)

    told, files = ask_both(
        lambda: opened(f"{path}/{_METADATA}").metadata().schema.metadata or {},
        lambda: store.list(path),
        is_local=store.is_local,
        engine=store.engine,
    )
    words = _stop_words(told)
    try:
        if not _is_known(told):
            return _Loaded(None, words)
        places = [meta.path for meta in files if meta.path.endswith(_ROWS)]
        partitions = [_load_partition(store, place, opened) for place in places]
    except BaseException as error:
        if not _is_of_the_library(error):
            raise
        return _Loaded(None, words)
    known = tuple(one for one in partitions if one is not None)
    return _Loaded(TextSegment(key, known, store.engine) if len(known) == len(partitions) else None, words)


def _load_partition(
    store: ObjectStore, path: str, opened: Callable[..., LanceFileReader]
) -> TextPartition | None:
    """Return a part of a segment by the path of its rows, or None if its files are not as expected."""
    open_lists = partial(opened, path.replace(_ROWS, "_invert.lance"), _LISTS)

    def read_whole(place: str) -> pa.Table:
        return opened(place).read_all(batch_size=1 << 20).to_table()

    lists, (rows, words) = ask_both(
        open_lists,
        lambda: tuple(
            concurrent_map(
                read_whole,
                (path, path.replace(_ROWS, "_tokens.lance")),
                is_local=store.is_local,
                engine=store.engine,
            )
        ),
        is_local=store.is_local,
        engine=store.engine,
    )
    # Whether it can be read at all is found out now, while the library can still be asked instead.
    if not lists.metadata().num_rows or _STORED_WORDS not in words.column_names:
        return None
    place = f"{store.uri}/{path}"
    return TextPartition(
        place,
        rows.column("_rowid").to_numpy(),
        rows.column("_num_tokens").to_numpy().astype(np.int32),
        Fst(words.column(_STORED_WORDS)[0].as_py(), where=place),
        _Lists(OpenFile(open_lists, lists, is_local=store.is_local)),
    )


def _stop_words(said: Mapping[bytes, bytes]) -> tuple[str, ...] | None:
    try:
        words = json.loads(said.get(b"params", b"{}")).get("custom_stop_words")
    except (ValueError, AttributeError):
        return None
    return None if words is None else tuple(map(str, words))


def _is_known(said: Mapping[bytes, bytes]) -> bool:
    """Whether the lists of a segment are written in the way that is known."""
    return (
        said.get(b"posting_tail_codec") == TAIL_CODEC.encode()
        and said.get(b"posting_block_size") == str(BLOCK_ROWS).encode()
        and said.get(b"token_set_format") == b"fst"
    )
