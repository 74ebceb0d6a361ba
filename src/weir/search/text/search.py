"""Text search: the rows of the merged view that best match a text query.

Scores are those that an index of exactly the live rows would give. The corpus statistics of the table are
added up: what the base table's index knows of its live rows, and the words of all newer rows. Newer rows are
scored by that directly; of the base table, what Lance's index finds is scored again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import xxhash

from weir.base.table import BaseTable
from weir.lsm.deletion_mask import DeletionMask
from weir.search.chosen_rows import fetch_chosen, order_by_key, result_schema
from weir.search.text.bm25 import DEFAULT, Constants
from weir.search.text.corpus import Corpus
from weir.search.text.index import TextIndex, text_index
from weir.search.text.index_task import IndexTextTask
from weir.search.text.levels import LevelsPart, levels_parts
from weir.search.text.match import Node, Words, has_phrases
from weir.search.text.postings_task import MOST_POSTINGS, PostingsTextTask
from weir.search.text.query import TextQuery, leaves
from weir.search.text.task import SCORE, IndexedTextTask, Question, Scores, TextCandidates, TextTask
from weir.search.text.term_expansion import with_words
from weir.search.text.unindexed_parts import TextPart, fragment_parts
from weir.search.text.unindexed_task import PartsTextTask
from weir.snapshots.snapshot import Consistency, ReadSnapshot
from weir.storage.interface import ObjectStore

__all__ = ["TextSearchPlan", "plan_text_search"]

_NO_SCORES: Scores = np.zeros(0, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class TextSearchPlan:
    """What a text search will do.

    Parameters
    ----------
    schema : Schema
        Schema of the result.
    columns : tuple of str
        Columns of the table in it.
    primary_key : tuple of str
        The key, by which rows that are equally good come where it is among the columns.
    k : int
        Rows to find.
    indexed : IndexedTextTask
        The part of the rows that the base table's index covers.
    newer : PartsTextTask or None
        The task of all others; None if there are none.
    header : str
        The search as a whole, for people.
    """

    schema: pa.Schema
    columns: tuple[str, ...]
    primary_key: tuple[str, ...]
    k: int
    indexed: IndexedTextTask
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
        return self.merge([self.indexed.best(others), *newer])

    def merge(self, found: Sequence[TextCandidates]) -> pa.Table:
        """Return the best rows of all; equally good ones by key, if that is among the columns.

        Which of equally good ones are the last of them, where there is no room for all, follows from the
        order of the tasks, and then of the places in each.
        """
        scores = np.concatenate([one.score for one in found])
        rows = np.concatenate([one.rows for one in found])
        task = np.repeat(np.arange(len(found)), [len(one.rows) for one in found])
        chosen = np.lexsort((rows, task, -scores))[: self.k]
        table = fetch_chosen(self.schema, self.columns, self.tasks, found, task, chosen)
        best = scores[chosen]
        order = order_by_key(table, self.primary_key, [best])
        if order is not None:
            # The scores are equal where rows change places.
            table = table.take(pa.array(order))
        return table.append_column(self.schema.field(SCORE), pa.array(best))

    def describe(self) -> str:
        """Return the plan for people, one source per line."""
        lines = [self.header]
        lines += [f"  {task.describe()}" for task in self.tasks]
        return "\n".join(lines)


def plan_text_search(
    store: ObjectStore,
    snapshot: ReadSnapshot,
    query: TextQuery,
    *,
    k: int,
    columns: Sequence[str] | None,
    filter: str | None,
    consistency: Consistency | str,
    constants: Mapping[str, Constants] | None = None,
) -> TextSearchPlan:
    """Return what a text search of ``snapshot`` will do.

    Parameters
    ----------
    query : TextQuery
        Every part of it names its column.
    constants : mapping of str to Constants, optional
        By column: what its texts are scored by.

    Raises
    ------
    QueryError
        If a column has no full-text index, or one without positions for a phrase, or several where Lance is
        asked; or a part of the query has no word that the index knows of, such as stop words alone.
    """
    base = snapshot.base
    names = tuple(base.schema.names if columns is None else columns)
    shown = snapshot.shown_to(filter)
    filter = shown.live_filter(filter)
    schema = result_schema(base.schema, names, [pa.field(SCORE, pa.float32())])
    searched = list(dict.fromkeys(leaf.column for leaf in leaves(query) if leaf.column is not None))
    indexes = _indexes(snapshot, searched)
    tokenizers = {column: index.tokenizer for column, index in indexes.items()}
    # Every row counts for the statistics, so that no shard can be left out.
    levels = snapshot.levels(snapshot.shards)
    mask = snapshot.base_mask(snapshot.shards)
    parts = _parts(snapshot, indexes)
    asked = constants or {}
    corpora = {
        column: Corpus(index, mask, levels, parts, asked.get(column, DEFAULT))
        for column, index in indexes.items()
    }
    node = with_words(query, corpora)
    statistics = {column: corpus.statistics() for column, corpus in corpora.items()}
    question = Question(node, statistics, tokenizers, k, names, filter)
    dead = shown.base_mask(snapshot.shards)
    indexed = _indexed_task(base, _common(indexes), question, query, dead, corpora)
    searched_parts = parts if shown is snapshot else _parts(shown, indexes)
    newer = PartsTextTask(tuple(searched_parts), question) if searched_parts else None
    counted = ", ".join(
        f"{one.documents} texts of {one.mean_length:.1f} words in {column}"
        for column, one in statistics.items()
    )
    header = f"{k} best of {store.uri}, {consistency}: base version {base.version}, {counted}"
    return TextSearchPlan(schema, names, base.primary_key, k, indexed, newer, header)


def _parts(snapshot: ReadSnapshot, indexes: Mapping[str, TextIndex]) -> list[TextPart]:
    """Return what the indexes do not cover."""
    levels, mask = snapshot.levels(snapshot.shards), snapshot.base_mask(snapshot.shards)
    # Not by the instant at which rows are dead: reads a moment apart mostly find the same ones dead.
    dead = None if snapshot.dead_at is None else xxhash.xxh3_128_digest(mask.row_ids.tobytes())
    by = (*(level.source.identity for level in levels), dead)
    return [*fragment_parts(snapshot.base, indexes, mask, by), *snapshot.once(_levels_parts)]


def _levels_parts(snapshot: ReadSnapshot) -> list[LevelsPart]:
    return levels_parts(snapshot.levels(snapshot.shards))


def _indexed_task(
    base: BaseTable,
    fragments: frozenset[int],
    question: Question,
    query: TextQuery,
    mask: DeletionMask,
    corpora: Mapping[str, Corpus],
) -> IndexedTextTask:
    """Return how the rows that the index covers are searched: by its posting lists where that is quicker."""
    node = question.node
    if len(corpora) == 1 and question.filter is None and not has_phrases(node):
        ((column, corpus),) = corpora.items()
        # With other constants than its own, Lance's scores say less about which rows are the best.
        is_own = question.statistics[column].constants == DEFAULT
        if corpus.postings is not None and (corpus.postings <= MOST_POSTINGS or not is_own):
            return PostingsTextTask(base, fragments, column, question, mask)
    for corpus in corpora.values():
        corpus.index.refuse_rivals()
    bounds = [corpus.bounds(question.statistics[column]) for column, corpus in corpora.items()]
    # By more than words that are to occur Lance may have added up more than counts.
    shortfall = min(low for low, _ in bounds) if _is_plain(node) else 0.0
    excess = max(high for _, high in bounds)
    return IndexTextTask(base, fragments, question, query, mask, base.dataset.count_rows(), excess, shortfall)


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


def _is_plain(node: Node) -> bool:
    """Whether a query is words that are each matched exactly."""
    return isinstance(node, Words) and all(len(group) == 1 for group in node.groups)
