"""Text queries in Lance's form, which find every row that may be among the best."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from lance import query as lance_query

from weir.search.text.query import (
    MAX_EXPANSIONS,
    BoostQuery,
    MatchQuery,
    MultiMatchQuery,
    PhraseQuery,
    TextQuery,
    fuzziness,
    leaves,
    searched_column,
)
from weir.search.text.tokenizer import Tokenizer

__all__ = ["for_lance", "fuzzy_for_lance"]


def fuzzy_for_lance(word: str, query: MatchQuery, distance: int) -> lance_query.FullTextQuery:
    """Return a query for all words that one word of a fuzzy match may match, and some more."""
    return lance_query.MatchQuery(
        word,
        searched_column(query),
        boost=query.boost,
        fuzziness=distance,
        max_expansions=10 * MAX_EXPANSIONS,
        prefix_length=query.prefix_length,
    )


def for_lance(query: TextQuery, tokenizers: Mapping[str, Tokenizer]) -> lance_query.FullTextQuery:
    """Return a query by which Lance finds all candidates, and scores them no lower than it should."""
    if isinstance(query, PhraseQuery):
        if query.slop:
            # Where a word occurs more than once Lance does not try all of its places.
            every = lance_query.FullTextOperator.AND
            return lance_query.MatchQuery(query.query, searched_column(query), operator=every)
        return lance_query.PhraseQuery(query.query, searched_column(query))
    if isinstance(query, MatchQuery):
        operator = lance_query.FullTextOperator(query.operator.upper())
        words = tokenizers[searched_column(query)].words(query.query)
        if not any(fuzziness(query, word) for word in words):
            return lance_query.MatchQuery(
                query.query, searched_column(query), boost=query.boost, operator=operator
            )
        occur = lance_query.Occur.MUST if query.operator == "and" else lance_query.Occur.SHOULD
        return lance_query.BooleanQuery(
            [(occur, fuzzy_for_lance(word, query, fuzziness(query, word))) for word in words]
        )
    if isinstance(query, MultiMatchQuery):
        return lance_query.MultiMatchQuery(
            query.query,
            list(query.columns),
            boosts=None if query.boosts is None else list(query.boosts),
            operator=lance_query.FullTextOperator(query.operator.upper()),
        )
    if isinstance(query, BoostQuery):
        return for_lance(query.positive, tokenizers)
    clauses = []
    make = partial(for_lance, tokenizers=tokenizers)
    clauses += [(lance_query.Occur.MUST, make(one)) for one in query.must]
    clauses += [(lance_query.Occur.SHOULD, make(one)) for one in query.should]
    # What finds more here than it does in the end must not be left out.
    exact = [one for one in query.must_not if not any(_finds_more(leaf, tokenizers) for leaf in leaves(one))]
    clauses += [(lance_query.Occur.MUST_NOT, make(one)) for one in exact]
    return lance_query.BooleanQuery(clauses)


def _finds_more(leaf: MatchQuery | PhraseQuery, tokenizers: Mapping[str, Tokenizer]) -> bool:
    if isinstance(leaf, PhraseQuery):
        return leaf.slop > 0
    return any(fuzziness(leaf, word) for word in tokenizers[searched_column(leaf)].words(leaf.query))
