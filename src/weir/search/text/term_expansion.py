"""The words of a text query, tokenized like the indexes do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weir.errors import QueryError
from weir.search.text.corpus import Corpus
from weir.search.text.match import AnyOf, Boosted, Combined, Node, Phrase, Words
from weir.search.text.query import (
    BoostQuery,
    MatchQuery,
    MultiMatchQuery,
    PhraseQuery,
    TextQuery,
    fuzziness,
    searched_column,
)

__all__ = ["with_words"]


def with_words(query: TextQuery, corpora: Mapping[str, Corpus]) -> Node:
    """Return a query with its words known, and take them into the statistics."""
    if isinstance(query, MatchQuery):
        return _with_words_of_match(query, corpora)
    if isinstance(query, PhraseQuery):
        corpus = corpora[searched_column(query)]
        if not corpus.index.has_positions:
            raise QueryError(
                f"the full-text index of {query.column!r} stores no positions, so it cannot find phrases",
                where="column",
                hint=f'Rebuild it: table.indexes.create("{query.column}", "INVERTED", with_position=True)',
            )
        tokens = corpus.index.tokenizer.tokens(query.query)
        _refuse_wordless(tokens, query)
        for word, _ in tokens:
            corpus.add(word, query.query)
        return Phrase(searched_column(query), tuple(tokens), query.slop)
    if isinstance(query, MultiMatchQuery):
        return AnyOf(tuple(with_words(one, corpora) for one in query.matches))
    if isinstance(query, BoostQuery):
        return Boosted(
            with_words(query.positive, corpora), with_words(query.negative, corpora), query.negative_boost
        )

    def each(parts: Sequence[TextQuery]) -> tuple[Node, ...]:
        return tuple(with_words(one, corpora) for one in parts)

    return Combined(each(query.must), each(query.should), each(query.must_not))


def _with_words_of_match(query: MatchQuery, corpora: Mapping[str, Corpus]) -> Words:
    corpus = corpora[searched_column(query)]
    words = corpus.index.tokenizer.words(query.query)
    _refuse_wordless(words, query)
    groups = []
    for word in words:
        distance = fuzziness(query, word)
        if distance:
            groups.append(corpus.like(word, query, distance))
        else:
            corpus.add(word, query.query)
            groups.append((word,))
    return Words(searched_column(query), tuple(groups), query.operator == "and", query.boost)


def _refuse_wordless(words: Sequence[object], query: MatchQuery | PhraseQuery) -> None:
    if not words:
        raise QueryError(
            f"the query {query.query!r:.60} has no word that the index of {query.column!r} knows",
            where="query",
            hint="Words that are in nearly every text, and punctuation, are left out of the index",
        )
