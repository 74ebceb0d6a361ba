"""Searching by text: the rows of the merged view that answer a text query best.

Scores are those that an index of exactly the rows that count would give. What is common in the table is
added up: what the base table's index knows of its rows that still count, and the words of all newer rows.
Newer rows are scored by that directly. Of the base table, Lance's index yields candidates by scores of its
own, which are scored again; and since it can be told by how much the one score may exceed the other, it can
be told when no other row can be among the best.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance import query as lance_query

from weir.base.table import BaseTable
from weir.cache import process_cache
from weir.errors import QueryError
from weir.read.blocked import BlockedRows
from weir.read.bm25 import Statistics, weight
from weir.read.damage import reading
from weir.read.layers import FreshLayer, base_blocked, fresh_layers
from weir.read.snapshot import Consistency, ReadSnapshot
from weir.read.text_index import TextIndex, text_index
from weir.read.text_match import AnyOf, Boosted, Combined, Node, Phrase, Words, score, words_of
from weir.read.text_parts import LayerPart, TextPart, fragment_parts, replaced_texts, totals
from weir.read.text_query import (
    MAX_EXPANSIONS,
    BooleanQuery,
    BoostQuery,
    MatchQuery,
    MultiMatchQuery,
    PhraseQuery,
    TextQuery,
    leaves,
)
from weir.read.tokens_of_text import AskedTexts, Occurring, TextRows, Tokenizer, occurrences
from weir.read.vector_query import is_vector
from weir.read.vector_search import fetch_chosen, result_schema, take_numbered, take_row_ids
from weir.read.word_distance import words_within
from weir.storage.interface import ObjectStore

__all__ = ["SCORE", "TextCandidates", "TextSearchPlan", "check_text_columns", "plan_text_search"]

SCORE = "_score"

Scores = npt.NDArray[np.float32]

_ROW_ID = "_rowid"
_NO_SCORES: Scores = np.zeros(0, dtype=np.float32)
_SPARE_ROWS = 10
_MORE = 4
_MOST_CANDIDATES = 4_096
_AUTOMATIC_FUZZINESS = ((2, 0), (5, 1))


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


@dataclass(frozen=True, slots=True)
class Question:
    """What every source is asked.

    Parameters
    ----------
    node : Words, Phrase, AnyOf, Combined or Boosted
        The query, its words known.
    statistics : mapping of str to Statistics
        By column: what is common in the table.
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


@dataclass(frozen=True, slots=True)
class IndexTextTask:
    """Search the rows of the base table that its full-text index covers.

    Parameters
    ----------
    base : BaseTable
        The base table.
    fragments : frozenset of int
        Its fragments that are covered.
    question : Question
        What is asked for.
    query : TextQuery
        The query as it was passed, with its columns.
    blocked : BlockedRows
        Rows that do not count.
    rows : int
        Rows of the base table.
    excess, shortfall : float
        By what Lance's score of a row may have to be multiplied, at most and at least, to be the row's
        score. The least is 0 where it cannot be told.
    """

    base: BaseTable = field(repr=False)
    fragments: frozenset[int] = field(repr=False)
    question: Question = field(repr=False)
    query: TextQuery
    blocked: BlockedRows = field(repr=False)
    rows: int
    excess: float
    shortfall: float

    @property
    def first_limit(self) -> int:
        """How many rows to ask Lance for first."""
        share = 0.0 if self._passes_over else len(self.blocked) / max(self.rows, 1)
        return int((self.question.k + _SPARE_ROWS) / (1 - share)) + 1

    @property
    def _passes_over(self) -> bool:
        # Lance takes longer to pass over many rows than to find a few more, which are then dropped.
        return 2 * len(self.blocked) > self.rows

    @property
    def _at_once(self) -> bool:
        """Whether the columns of the result are read with the texts."""
        schema = self.base.schema
        return not any(is_vector(schema.field(name).type) for name in self.question.columns)

    def ask(self, limit: int) -> pa.Table:
        """Return the ids of the rows that are best by Lance's scores, and these."""
        base, question = self.base, self.question
        with reading(f"base table version {base.version}", base.uri, question.filter):
            return base.dataset.scanner(
                columns=[SCORE],
                full_text_query=_for_lance(self.query, question.tokenizers),
                filter=question.filter,
                prefilter=question.filter is not None,
                limit=limit,
                fast_search=True,
                with_row_id=True,
                row_addr_blocklist=self.blocked.serialized if self._passes_over else None,
                disable_scoring_autoprojection=True,
            ).to_table()

    def best(self, asked: pa.Table, limit: int, others: Scores) -> TextCandidates:
        """Return the best rows that count.

        Parameters
        ----------
        asked : Table
            What :meth:`ask` returned.
        limit : int
            For how many rows it was asked.
        others : ndarray of float32
            Scores of the best rows elsewhere. Rows here that are no better than ``k`` of them are of no
            use.
        """
        k = self.question.k
        while True:
            row_ids = self._possible(asked, others)
            table = self._read(row_ids)
            scores, rows = self._scored(table)
            if asked.num_rows < limit or limit > max(_MOST_CANDIDATES, k):
                break
            least = _least_of_best(np.concatenate([scores, others]), k)
            if self.excess * asked.column(SCORE).to_numpy().min() <= least:
                break
            limit *= _MORE
            asked = self.ask(limit)
        best = np.lexsort((row_ids[rows], -scores))[:k]
        chosen = pa.array(rows[best])
        columns = table.select(list(self.question.columns)).take(chosen) if self._at_once else None
        return TextCandidates(scores[best], row_ids[rows[best]], columns)

    def _possible(self, asked: pa.Table, others: Scores) -> npt.NDArray[np.int64]:
        """Return the rows that count and may be among the best: reading texts takes most of the time."""
        row_ids = asked.column(_ROW_ID).to_numpy()
        keep = ~self.blocked.contains(row_ids)
        if len(self.question.tokenizers) > 1:
            # Lance finds more where one column's index covers what another's does not.
            known = (text_index(self.base, column, self.fragments) for column in self.question.tokenizers)
            keep &= np.logical_or.reduce([index.knows(row_ids) for index in known])
        scores = asked.column(SCORE).to_numpy()[keep]
        least = _least_of_best(np.concatenate([self.shortfall * scores, others]), self.question.k)
        possible: npt.NDArray[np.int64] = row_ids[keep][self.excess * scores >= least].astype(np.int64)
        # In the order in which they are read.
        possible.sort()
        return possible

    def _read(self, row_ids: npt.NDArray[np.int64]) -> pa.Table:
        """Return the texts of some rows, and the columns of the result if they can be read along."""
        columns = dict.fromkeys(
            [*self.question.tokenizers, *(self.question.columns if self._at_once else ())]
        )
        with reading(f"base table version {self.base.version}", self.base.uri):
            return take_row_ids(self.base.dataset, row_ids, list(columns))

    def _scored(self, table: pa.Table) -> tuple[Scores, npt.NDArray[np.int64]]:
        question = self.question
        texts = {
            column: AskedTexts(
                table.column(column).combine_chunks(), question.tokenizers[column], sorted(words)
            )
            for column, words in words_of(question.node).items()
        }
        scores, found = score(question.node, texts, question.statistics)
        rows = np.flatnonzero(found)
        return scores[rows].astype(np.float32), rows

    def fetch(self, found: TextCandidates, chosen: npt.NDArray[np.int64]) -> pa.Table:
        """Return the columns of the result of some candidates."""
        if found.table is not None:
            return found.table.take(pa.array(chosen))
        with reading(f"base table version {self.base.version}", self.base.uri):
            return take_row_ids(self.base.dataset, found.rows[chosen], self.question.columns)

    def describe(self) -> str:
        """Return one line for people."""
        where = f" where {self.question.filter}" if self.question.filter else ""
        return (
            f"base table version {self.base.version}: full-text index of "
            f"{', '.join(self.question.tokenizers)}{where}, candidates by scores that may be "
            f"{self.excess:.4f} times as high, {len(self.blocked)} rows superseded or deleted"
        )


def _least_of_best(scores: Scores, k: int) -> float:
    """Return the score that a row has to have to be among the ``k`` best."""
    return float(np.partition(scores, -k)[-k]) if len(scores) >= k else -np.inf


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
        good = own >= _least_of_best(own, question.k)
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


@dataclass(frozen=True, slots=True)
class TextSearchPlan:
    """What a text search will do.

    Parameters
    ----------
    schema : Schema
        Schema of the result.
    columns : tuple of str
        Columns of the table in it.
    k : int
        Rows to find.
    indexed : IndexTextTask
        The part of the rows that the base table's index covers.
    newer : PartsTextTask or None
        The part of all others; None if there are none.
    header : str
        The search as a whole, for people.
    """

    schema: pa.Schema
    columns: tuple[str, ...]
    k: int
    indexed: IndexTextTask
    newer: PartsTextTask | None
    header: str

    @property
    def tasks(self) -> tuple[TextTask, ...]:
        """Each source's part."""
        return (self.indexed,) if self.newer is None else (self.indexed, self.newer)

    def run(self) -> pa.Table:
        """Return the best rows, best first."""
        # One after the other: Lance uses threads of its own, and handing either part to another thread takes
        # longer on a busy machine than scoring the newer rows. These come first, because what they have
        # makes rows of the index needless to read.
        newer = [] if self.newer is None else [self.newer.candidates()]
        others = np.concatenate([_NO_SCORES, *(one.score for one in newer)])
        limit = self.indexed.first_limit
        return self.merge([self.indexed.best(self.indexed.ask(limit), limit, others), *newer])

    def merge(self, found: Sequence[TextCandidates]) -> pa.Table:
        """Return the best rows of all; equally good ones by task, and then by place."""
        scores = np.concatenate([one.score for one in found])
        rows = np.concatenate([one.rows for one in found])
        task = np.repeat(np.arange(len(found)), [len(one.rows) for one in found])
        chosen = np.lexsort((rows, task, -scores))[: self.k]
        table = fetch_chosen(self.schema, self.columns, self.tasks, found, task, chosen)
        return table.append_column(self.schema.field(SCORE), pa.array(scores[chosen]))

    def describe(self) -> str:
        """Return the plan for people, one source per line."""
        lines = [self.header]
        lines += [f"  {task.describe()}" for task in self.tasks]
        return "\n".join(lines)


def check_text_columns(schema: pa.Schema, query: TextQuery, column: str | None) -> TextQuery:
    """Return a query in which every part names its column.

    Raises
    ------
    QueryError
        If a column does not exist or holds no text, or none is named and there are several.
    """
    texts = [one.name for one in schema if pa.types.is_string(one.type) or pa.types.is_large_string(one.type)]
    shown = f"The text columns are {', '.join(texts)}" if texts else "The table has no text column"
    if column is None and any(leaf.column is None for leaf in leaves(query)):
        if len(texts) != 1:
            raise QueryError(
                f"the table has {len(texts)} text columns: say which", where="column", hint=shown
            )
        column = texts[0]
    named = [leaf.column or column for leaf in leaves(query)]
    if column is not None:
        named.append(column)
    for name in named:
        if not isinstance(name, str) or name not in schema.names:
            raise QueryError(f"the table has no column {name!r:.60}", where="column", hint=shown)
        if name not in texts:
            raise QueryError(
                f"column {name!r} is {schema.field(name).type}, which is not text", where="column", hint=shown
            )
    return _named(query, column)


def _named(query: TextQuery, column: str | None) -> TextQuery:
    if isinstance(query, MatchQuery):
        return MatchQuery(
            query.query,
            query.column or column,
            query.boost,
            query.fuzziness,
            query.max_expansions,
            query.operator,
            query.prefix_length,
        )
    if isinstance(query, PhraseQuery):
        return PhraseQuery(query.query, query.column or column, query.slop)
    if isinstance(query, BoostQuery):
        return BoostQuery(
            _named(query.positive, column), _named(query.negative, column), query.negative_boost
        )
    if isinstance(query, BooleanQuery):
        parts = (query.must, query.should, query.must_not)
        return BooleanQuery(*(tuple(_named(one, column) for one in part) for part in parts))
    return query


def plan_text_search(
    store: ObjectStore,
    snapshot: ReadSnapshot,
    query: TextQuery,
    *,
    k: int,
    columns: Sequence[str] | None,
    filter: str | None,
    consistency: Consistency | str,
) -> TextSearchPlan:
    """Return what a text search of ``snapshot`` will do.

    Parameters
    ----------
    query : TextQuery
        Every part of it names its column.

    Raises
    ------
    QueryError
        If a column has no full-text index, or one without positions for a phrase; or a part of the query
        has no word that the index knows of, such as stop words alone.
    """
    base = snapshot.base
    names = tuple(base.schema.names if columns is None else columns)
    schema = result_schema(base.schema, names, [pa.field(SCORE, pa.float32())])
    searched = list(dict.fromkeys(leaf.column for leaf in leaves(query) if leaf.column is not None))
    indexes = _indexes(snapshot, searched)
    tokenizers = {column: index.tokenizer for column, index in indexes.items()}
    # Every row counts for what is common, so that no shard can be left out.
    layers = fresh_layers(store, snapshot, snapshot.shards)
    blocked = base_blocked(snapshot, layers)
    parts: list[TextPart] = [
        *fragment_parts(base, indexes, blocked, layers),
        *(LayerPart(one) for one in layers),
    ]
    corpora = {column: _Corpus(index, layers, parts) for column, index in indexes.items()}
    node = _resolved(query, corpora)
    statistics = {column: corpus.statistics() for column, corpus in corpora.items()}
    question = Question(node, statistics, tokenizers, k, names, filter)
    bounds = [corpus.bounds(statistics[column]) for column, corpus in corpora.items()]
    # By more than words that are to occur Lance may have added up more than counts.
    shortfall = min(low for low, _ in bounds) if _is_plain(node) else 0.0
    excess = max(high for _, high in bounds)
    indexed = IndexTextTask(
        base, _common(indexes), question, query, blocked, base.dataset.count_rows(), excess, shortfall
    )
    newer = PartsTextTask(tuple(parts), question) if parts else None
    counted = ", ".join(
        f"{one.documents} texts of {one.mean_length:.1f} words in {column}"
        for column, one in statistics.items()
    )
    header = f"{k} best of {store.uri}, {consistency}: base version {base.version}, {counted}"
    return TextSearchPlan(schema, names, k, indexed, newer, header)


def _indexes(snapshot: ReadSnapshot, columns: Sequence[str]) -> dict[str, TextIndex]:
    """Return the indexes of some columns, over the fragments that all of them cover."""
    base = snapshot.base
    indexes = {column: text_index(base, column) for column in columns}
    common = _common(indexes)
    return {
        column: index if index.fragments == common else text_index(base, column, common)
        for column, index in indexes.items()
    }


def _common(indexes: Mapping[str, TextIndex]) -> frozenset[int]:
    return frozenset.intersection(*(index.fragments for index in indexes.values()))


class _Corpus:
    """All texts of one column that count, as the parts they are in."""

    def __init__(self, index: TextIndex, layers: Sequence[FreshLayer], parts: Sequence[TextPart]) -> None:
        self.index = index
        self._key: Hashable = (*index.key, tuple(layer.source.identity for layer in layers))
        self._layers = layers
        self._given_parts = parts
        self._frequencies: dict[str, int] = {}
        self._in_index: dict[str, int] = {}

    # Both are looked at only for what is not known yet.

    @cached_property
    def _replaced(self) -> list[tuple[TextRows, npt.NDArray[np.bool_], Hashable]]:
        return replaced_texts(self.index, self._layers)

    @cached_property
    def _parts(self) -> list[tuple[TextRows, npt.NDArray[np.bool_], Hashable]]:
        index = self.index
        return [
            (part.texts(index.column, index.tokenizer), part.live, (part.decided_by, index.column))
            for part in self._given_parts
        ]

    def add(self, word: str, source: str) -> int:
        """Take a word into the statistics, and return how many texts have it."""
        if word not in self._frequencies:
            found = process_cache().get_or_load(
                ("frequency", self._key, word), lambda: self._count(word, source), lambda _: 64
            )
            self._frequencies[word], self._in_index[word] = found
        return self._frequencies[word]

    def _count(self, word: str, source: str) -> tuple[int, int]:
        in_index = self.index.frequency(word, source)

        def occurring(texts: TextRows, counted: npt.NDArray[np.bool_]) -> int:
            return int(np.count_nonzero(counted[texts.occurrences(word)[0]]))

        replaced = sum(occurring(texts, counted) for texts, counted, _ in self._replaced)
        newer = sum(occurring(texts, counted) for texts, counted, _ in self._parts)
        return in_index - replaced + newer, in_index

    def statistics(self) -> Statistics:
        """Return what is common, with the words that were taken in."""
        documents, words = process_cache().get_or_load(
            ("documents and words", self._key), self._total, lambda _: 64
        )
        return Statistics(documents, words, self._frequencies)

    def _total(self) -> tuple[int, int]:
        lengths = self.index.lengths
        documents, words = len(lengths), int(lengths.sum())
        for texts, counted, decided_by in self._replaced:
            less = totals(texts, counted, decided_by)
            documents, words = documents - less.documents, words - less.words
        for texts, counted, decided_by in self._parts:
            more = totals(texts, counted, decided_by)
            documents, words = documents + more.documents, words + more.words
        return documents, words

    def bounds(self, statistics: Statistics) -> tuple[float, float]:
        """Return how many times Lance's score of a row the row's score can be, at least and at most."""
        index = self.index
        if not index.indexed_documents or not statistics.documents:
            return 1.0, 1.0
        # How much less a text of some length is held against it, at most: that of the longest one.
        indexed_mean = index.indexed_words / index.indexed_documents
        by_length = weight(1, index.longest, statistics.mean_length) / weight(1, index.longest, indexed_mean)
        low, high = min(1.0, by_length), max(1.0, by_length)
        in_index = [(word, frequency) for word, frequency in self._in_index.items() if frequency]
        ratios = [
            (
                statistics.rarity(word) / index.most_rarity(frequency),
                statistics.rarity(word) / index.least_rarity(frequency),
            )
            for word, frequency in in_index
        ]
        # Lance's scores are rounded to float32.
        return (
            low * min((least for least, _ in ratios), default=1.0) * (1 - 1e-5),
            high * max((most for _, most in ratios), default=1.0) * (1 + 1e-5),
        )

    def like(self, word: str, query: MatchQuery, distance: int) -> tuple[str, ...]:
        """Return the words of texts that count which a fuzzy word matches, in alphabetical order."""
        near: set[str] = set()
        asked = _fuzzy_for_lance(word, query, distance)
        found = self.index.find(asked, [self.index.column])
        known = self.index.knows(found.column(_ROW_ID).to_numpy())
        texts = found.column(self.index.column).combine_chunks().filter(pa.array(known))
        sources = [TextRows(texts, self.index.tokenizer), *(one for one, _, _ in self._parts)]
        for source in sources:
            near.update(words_within(source.vocabulary, word, distance, query.prefix_length))
        chosen: list[str] = []
        for one in sorted(near, key=str.encode):
            if self.add(one, one) > 0:
                chosen.append(one)
                if len(chosen) == query.max_expansions:
                    break
        return tuple(chosen)


def _resolved(query: TextQuery, corpora: Mapping[str, _Corpus]) -> Node:
    """Return a query with its words known, and take them into the statistics."""
    if isinstance(query, MatchQuery):
        return _resolved_match(query, corpora)
    if isinstance(query, PhraseQuery):
        corpus = corpora[_column(query)]
        if not corpus.index.has_positions:
            raise QueryError(
                f"the full-text index of {query.column!r} keeps no positions, so it finds no phrases",
                where="column",
                hint=f'Create it anew: table.create_index("{query.column}", "INVERTED", with_position=True)',
            )
        tokens = corpus.index.tokenizer.tokens(query.query)
        _refuse_wordless(tokens, query)
        for word, _ in tokens:
            corpus.add(word, query.query)
        return Phrase(_column(query), tuple(tokens), query.slop)
    if isinstance(query, MultiMatchQuery):
        return AnyOf(tuple(_resolved(one, corpora) for one in query.matches))
    if isinstance(query, BoostQuery):
        return Boosted(
            _resolved(query.positive, corpora), _resolved(query.negative, corpora), query.negative_boost
        )

    def each(parts: Sequence[TextQuery]) -> tuple[Node, ...]:
        return tuple(_resolved(one, corpora) for one in parts)

    return Combined(each(query.must), each(query.should), each(query.must_not))


def _resolved_match(query: MatchQuery, corpora: Mapping[str, _Corpus]) -> Words:
    corpus = corpora[_column(query)]
    words = corpus.index.tokenizer.words(query.query)
    _refuse_wordless(words, query)
    groups = []
    for word in words:
        distance = _fuzziness(query, word)
        if distance:
            groups.append(corpus.like(word, query, distance))
        else:
            corpus.add(word, query.query)
            groups.append((word,))
    return Words(_column(query), tuple(groups), query.operator == "and", query.boost)


def _column(query: MatchQuery | PhraseQuery) -> str:
    assert query.column is not None
    return query.column


def _refuse_wordless(words: Sequence[object], query: MatchQuery | PhraseQuery) -> None:
    if not words:
        raise QueryError(
            f"the query {query.query!r:.60} has no word that the index of {query.column!r} knows of",
            where="query",
            hint="Words that are in nearly every text, and signs, are left out of the index",
        )


def _fuzziness(query: MatchQuery, word: str) -> int:
    if query.fuzziness is not None:
        return query.fuzziness
    return next((most for length, most in _AUTOMATIC_FUZZINESS if len(word) <= length), 2)


def _fuzzy_for_lance(word: str, query: MatchQuery, distance: int) -> lance_query.FullTextQuery:
    return lance_query.MatchQuery(
        word,
        _column(query),
        boost=query.boost,
        fuzziness=distance,
        max_expansions=10 * MAX_EXPANSIONS,
        prefix_length=query.prefix_length,
    )


def _for_lance(query: TextQuery, tokenizers: Mapping[str, Tokenizer]) -> lance_query.FullTextQuery:
    """Return a query by which Lance finds all candidates, and scores them no lower than it should."""
    if isinstance(query, PhraseQuery):
        return lance_query.PhraseQuery(query.query, _column(query), slop=query.slop)
    if isinstance(query, MatchQuery):
        operator = lance_query.FullTextOperator(query.operator.upper())
        words = tokenizers[_column(query)].words(query.query)
        if not any(_fuzziness(query, word) for word in words):
            return lance_query.MatchQuery(query.query, _column(query), boost=query.boost, operator=operator)
        occur = lance_query.Occur.MUST if query.operator == "and" else lance_query.Occur.SHOULD
        return lance_query.BooleanQuery(
            [(occur, _fuzzy_for_lance(word, query, _fuzziness(query, word))) for word in words]
        )
    if isinstance(query, MultiMatchQuery):
        return lance_query.MultiMatchQuery(
            query.query,
            list(query.columns),
            boosts=None if query.boosts is None else list(query.boosts),
            operator=lance_query.FullTextOperator(query.operator.upper()),
        )
    if isinstance(query, BoostQuery):
        return _for_lance(query.positive, tokenizers)
    clauses = []
    make: Callable[[TextQuery], lance_query.FullTextQuery] = lambda one: _for_lance(one, tokenizers)  # noqa: E731
    clauses += [(lance_query.Occur.MUST, make(one)) for one in query.must]
    clauses += [(lance_query.Occur.SHOULD, make(one)) for one in query.should]
    # A fuzzy query finds more here than it does in the end, which must not be left out.
    exact = [one for one in query.must_not if not any(_is_fuzzy(leaf, tokenizers) for leaf in leaves(one))]
    clauses += [(lance_query.Occur.MUST_NOT, make(one)) for one in exact]
    return lance_query.BooleanQuery(clauses)


def _is_plain(node: Node) -> bool:
    """Whether a query is words that are each looked for as they are."""
    return isinstance(node, Words) and all(len(group) == 1 for group in node.groups)


def _is_fuzzy(leaf: MatchQuery | PhraseQuery, tokenizers: Mapping[str, Tokenizer]) -> bool:
    if isinstance(leaf, PhraseQuery):
        return False
    return any(_fuzziness(leaf, word) for word in tokenizers[_column(leaf)].words(leaf.query))
