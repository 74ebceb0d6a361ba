"""Parsing of queries in JSON, and their results in JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from weir.errors import InputError, UnsupportedError
from weir.namespaces import (
    Aggregate,
    Answer,
    Each,
    Limit,
    Max,
    Nearest,
    Order,
    Product,
    Query,
    State,
    Sum,
    Words,
)
from weir.namespaces.filter.expression import EVERYTHING, Comparison, Operator
from weir.namespaces.filter.patterns import tokens
from weir.namespaces.names import ID, check_attribute_name
from weir.namespaces.query import MOST_ROWS
from weir.namespaces.ranking import (
    Constant,
    Decay,
    Distance,
    Expression,
    Matches,
    Ranking,
    Saturate,
    Value,
    leaves_in,
)
from weir.namespaces.reading import DISTANCE
from weir.namespaces.values import documents_of
from weir.namespaces.vectors import one_vector
from weir.service.fields import flag, known_only, mapping, names, number, sequence, whole
from weir.service.openapi import members
from weir.service.turbopuffer.filters import MOST_DEPTH, parse_filter
from weir.service.turbopuffer.schema import parse_metric
from weir.service.turbopuffer.shapes import QueryBody, SubQuery

__all__ = ["Fusion", "Request", "parse_query", "parse_ranking", "parse_request", "shown_answer"]

_QUERY = members(SubQuery)
_WHOLE = members(QueryBody) - {"queries"}
_MULTI = frozenset({"queries", "consistency", "vector_encoding", "rerank_by", "limit", "offset", "top_k"})
_MOST_DEPTH = 16
_MOST_COMPUTED = 16
_MOST_LEAVES = 256
_MOST_CHARACTERS = 8_192
_LEFT_OUT = frozenset({"Embed", "Highlight"})
_Parts = TypeVar("_Parts", list[Any], dict[str, Any])
_COMBINED = frozenset({"And", "Or", "Not"})
_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|[smhdw])\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """Fusion of the rankings of several queries, by reciprocal rank."""

    weights: tuple[float, ...]
    constant: float
    limit: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The queries of one request.

    Parameters
    ----------
    queries : tuple of Query
        The queries.
    is_multi : bool
        Whether they came as a list.
    fusion : Fusion, optional
        How to fuse them.
    state : State
        The state they read.
    base64 : bool
        Whether to return vectors in base64.
    """

    queries: tuple[Query, ...]
    is_multi: bool
    fusion: Fusion | None
    state: State
    base64: bool


def parse_request(body: Mapping[str, Any], *, depth: int, most_queries: int) -> Request:
    """Parse a request body.

    Raises
    ------
    InputError, UnsupportedError
        If it is not valid.
    """
    encoding = body.get("vector_encoding")
    if encoding not in (None, "float", "base64"):
        raise InputError("vector_encoding is float or base64")
    state = _state(body.get("consistency"))
    if "queries" not in body:
        known_only(body, _WHOLE, "a query")
        queries: tuple[Query, ...] = (parse_query(body, depth),)
        return Request(queries=queries, is_multi=False, fusion=None, state=state, base64=encoding == "base64")
    known_only(body, _MULTI, "a query of several")
    given = sequence(body["queries"], "queries")
    if not 1 <= len(given) <= most_queries:
        raise InputError(f"queries is a list of 1 to {most_queries}")
    parts = []
    for one in given:
        part = mapping(one, "each of queries")
        known_only(part, _QUERY, "each of queries")
        parts.append(parse_query(part, depth))
    fusion = _fusion(body, parts)
    return Request(
        queries=tuple(parts if fusion is None else _shown_alike(parts)),
        is_multi=True,
        fusion=fusion,
        state=state,
        base64=encoding == "base64",
    )


def _shown_alike(queries: Sequence[Query]) -> list[Query]:
    """Return the queries with the union of their attributes: a fused ranking shows a document once."""
    named = dict.fromkeys(name for one in queries for name in one.include or ())
    excludes = [one.exclude for one in queries if one.include is None]
    include = None if excludes else tuple(named)
    exclude = frozenset.intersection(*excludes) - named.keys() if excludes else frozenset()
    return [replace(one, include=include, exclude=exclude) for one in queries]


def _state(value: object) -> State:
    if value is None:
        return State()
    asked = mapping(value, "consistency")
    known_only(asked, frozenset({"level", "max_staleness_seconds"}), "consistency")
    level = asked.get("level")
    if level == "strong":
        return State()
    if level != "eventual":
        raise InputError("the level of consistency is strong or eventual")
    return State(max_staleness=float(whole(asked, "max_staleness_seconds", 0, 86_400, 60)))


def _fusion(body: Mapping[str, Any], queries: Sequence[Query]) -> Fusion | None:
    value = body.get("rerank_by")
    if value is None:
        if any(body.get(name) is not None for name in ("limit", "top_k", "offset")):
            raise InputError("limit, top_k and offset of several queries go with rerank_by")
        return None
    if isinstance(value, dict) or (isinstance(value, list) and value[:1] != ["RRF"]):
        raise UnsupportedError("rerank_by is offered as RRF, and not by a model")
    asked = sequence(value, "rerank_by")
    options = mapping(asked[1], "the options of RRF") if len(asked) == 2 else {}
    known_only(options, frozenset({"rank_constant", "weights"}), "RRF")
    if len(asked) > 2 or any(query.rank_by is None for query in queries):
        raise InputError("RRF takes queries that rank documents")
    weights = options.get("weights")
    parsed = tuple(number(one, "a weight") for one in sequence(weights, "weights")) if weights else ()
    if weights is not None and (len(parsed) != len(queries) or min(parsed, default=0) <= 0):
        raise InputError("weights has a positive number for each query")
    limit, name = body.get("limit"), "limit" if body.get("top_k") is None else "top_k"
    if limit is not None and name == "top_k":
        raise InputError("several queries have top_k or limit, and not both")
    if isinstance(limit, dict):
        known_only(limit, frozenset({"total"}), "limit of several queries")
        limit = limit.get("total")
    most = {"limit": limit, "top_k": body.get("top_k")}
    return Fusion(
        weights=parsed or (1.0,) * len(queries),
        constant=whole(options, "rank_constant", 1, 1_000_000, 60),
        limit=whole(most, name, 1, MOST_ROWS, max(query.limit.total for query in queries)),
        offset=whole(body, "offset", 0, MOST_ROWS, 0),
    )


def parse_query(body: Mapping[str, Any], depth: int) -> Query:
    """Parse one query.

    Raises
    ------
    InputError, UnsupportedError
        If it is not valid.
    """
    if body.get("rerank_by"):
        raise UnsupportedError("rerank_by a model is not offered")
    parse_metric(body.get("distance_metric"))
    rank_by = None if body.get("rank_by") is None else parse_ranking(body["rank_by"], depth)
    include, exclude = _attributes(body)
    filters = body.get("filters")
    query = Query(
        rank_by=rank_by,
        filter=EVERYTHING if filters is None else parse_filter(filters, depth),
        limit=_limit(body),
        offset=whole(body, "offset", 0, MOST_ROWS, 0),
        include=include,
        exclude=exclude,
        aggregates=_aggregates(body.get("aggregate_by")),
        group_by=_groups(body.get("group_by")),
        computed=_computed(body.get("compute_attributes"), depth),
    )
    if rank_by is None and not query.aggregates:
        raise InputError("a query has rank_by or aggregate_by")
    return query


def _limit(body: Mapping[str, Any]) -> Limit:
    limit, top_k = body.get("limit"), body.get("top_k")
    if limit is not None and top_k is not None:
        raise InputError("a query has top_k or limit, and not both")
    if not isinstance(limit, dict):
        return Limit(whole({"top_k": limit if top_k is None else top_k}, "top_k", 1, MOST_ROWS, 10))
    known_only(limit, frozenset({"total", "per"}), "limit")
    total = whole(limit, "total", 1, MOST_ROWS, 10)
    if limit.get("per") is None:
        return Limit(total)
    per = mapping(limit["per"], "per of limit")
    known_only(per, frozenset({"attributes", "limit"}), "per of limit")
    attributes = names(per.get("attributes"), "attributes of limit per")
    if not attributes:
        raise InputError("attributes of limit per names at least one")
    return Limit(total, attributes, whole(per, "limit", 1, MOST_ROWS, 1))


def _attributes(body: Mapping[str, Any]) -> tuple[tuple[str, ...] | None, frozenset[str]]:
    include, exclude = body.get("include_attributes"), body.get("exclude_attributes")
    if exclude is not None:
        if include not in (None, True):
            raise InputError("a query has include_attributes or exclude_attributes, and not both")
        return None, frozenset(names(exclude, "exclude_attributes"))
    if include is None or include is False:
        return (), frozenset()
    if include is True:
        return None, frozenset()
    return tuple(dict.fromkeys(names(include, "include_attributes"))), frozenset()


def _few(parts: _Parts, what: str) -> _Parts:
    if len(parts) > _MOST_LEAVES:
        raise InputError(f"{what} has more than {_MOST_LEAVES} parts")
    return parts


def _aggregates(value: object) -> dict[str, Aggregate]:
    if value is None:
        return {}
    asked = _few(mapping(value, "aggregate_by"), "aggregate_by")
    return {label: _aggregate(one) for label, one in asked.items()}


def _aggregate(value: object) -> Aggregate:
    asked = sequence(value, "an aggregate")
    if not asked or not all(isinstance(one, str) for one in asked) or len(asked) > 2:
        raise InputError("an aggregate is ['Count'], ['Count', attribute] or ['Sum', attribute]")
    attribute = asked[1] if len(asked) == 2 else None
    if asked[0] == "Count":
        return Aggregate("count", None if attribute == ID else attribute)
    if asked[0] == "Sum" and attribute is not None:
        return Aggregate("sum", attribute)
    raise InputError("an aggregate is ['Count'], ['Count', attribute] or ['Sum', attribute]")


def _groups(value: object) -> tuple[str | Each, ...]:
    if value is None:
        return ()
    found: list[str | Each] = []
    for one in _few(sequence(value, "group_by"), "group_by"):
        if isinstance(one, dict):
            found += [_each(name, function) for name, function in one.items()]
        else:
            found += names([one], "group_by")
    keys = [one.name if isinstance(one, Each) else one for one in dict.fromkeys(found)]
    if len({*keys}) < len(keys):
        raise InputError("group_by has two keys of one name")
    return tuple(dict.fromkeys(found))


def _each(name: str, function: object) -> Each:
    asked = sequence(function, "a function of group_by")
    if len(asked) != 2 or asked[0] != "ForEachUnique":
        raise InputError("a function of group_by is ['ForEachUnique', attribute]")
    return Each(check_attribute_name(name), check_attribute_name(asked[1]))


def _computed(value: object, depth: int) -> dict[str, Expression | Nearest]:
    if value is None:
        return {}
    found: dict[str, Expression | Nearest] = {}
    for name, one in mapping(value, "compute_attributes").items():
        asked = sequence(one, "a computed attribute")
        if len(asked) == 3 and asked[1] == "VectorDist" and isinstance(asked[0], str):
            found[check_attribute_name(name)] = _nearest(asked)
            continue
        ranking = parse_ranking(asked, depth)
        if isinstance(ranking, Nearest | Order):
            raise InputError("a computed attribute is a score, or [attribute, 'VectorDist', vector]")
        found[check_attribute_name(name)] = ranking
    if len(found) > _MOST_COMPUTED:
        raise InputError(f"a query computes at most {_MOST_COMPUTED} attributes")
    return found


def parse_ranking(value: object, filter_depth: int = MOST_DEPTH) -> Ranking:
    """Parse a ranking.

    Parameters
    ----------
    value : object
        The decoded value.
    filter_depth : int
        Largest nesting depth of filters in it.

    Raises
    ------
    InputError, UnsupportedError
        If the ranking is not valid.
    """
    asked = sequence(value, "rank_by")
    if asked and isinstance(asked[0], list):
        return Order(tuple(_order(one) for one in _few(asked, "rank_by")))
    if len(asked) >= 2 and isinstance(asked[0], str) and isinstance(asked[1], str):
        if asked[1] in ("asc", "desc"):
            return Order((_order(asked),))
        if asked[1] in ("ANN", "kNN"):
            return _nearest(asked)
        if asked[1] == "SparseKNN":
            raise UnsupportedError("SparseKNN is not offered")
    ranking = _scores(asked, _MOST_DEPTH, filter_depth)
    if len(leaves_in(ranking)) > _MOST_LEAVES:
        raise InputError(f"rank_by has more than {_MOST_LEAVES} parts")
    return ranking


def _order(value: object) -> tuple[str, bool]:
    if (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and value[1] in ("asc", "desc")
    ):
        return value[0], value[1] == "desc"
    raise InputError("documents are ordered by [attribute, 'asc'] or [attribute, 'desc']")


def _nearest(asked: list[Any]) -> Nearest:
    if len(asked) != 3:
        raise InputError(f"{asked[1]} is [attribute, '{asked[1]}', vector]")
    vector = asked[2]
    if isinstance(vector, list) and vector and vector[0] == "Embed":
        raise UnsupportedError("Embed is not offered")
    if isinstance(vector, list) and vector and isinstance(vector[0], list):
        raise UnsupportedError("several vectors in one attribute (late_interaction) are not offered")
    return Nearest(asked[0], one_vector(vector), asked[1] == "kNN")


def _scores(value: object, depth: int, filter_depth: int) -> Expression:
    if depth <= 0:
        raise InputError("rank_by is nested too deeply")
    asked = sequence(value, "rank_by")
    if len(asked) >= 3 and asked[1] == "BM25" and isinstance(asked[0], str):
        return _words(asked)
    kind = asked[0] if asked and isinstance(asked[0], str) else None
    if kind in ("Sum", "Max") and len(asked) == 2:
        parts = tuple(_part(one, depth - 1, filter_depth) for one in sequence(asked[1], str(kind)))
        if not parts:
            raise InputError(f"{kind} has at least one part")
        return Sum(parts) if kind == "Sum" else Max(parts)
    if kind == "Product" and len(asked) == 3:
        factor, part = asked[1:] if isinstance(asked[1], int | float) else asked[:0:-1]
        return Product(_at_least_0(factor, "the factor of a product"), _scores(part, depth - 1, filter_depth))
    if kind == "Attribute" and len(asked) == 2:
        return Value(check_attribute_name(asked[1]))
    if kind == "Dist" and len(asked) == 3:
        of = _scores(asked[1], depth - 1, filter_depth)
        if not isinstance(of, Value) or isinstance(asked[2], list | dict):
            raise InputError("Dist is ['Dist', ['Attribute', attribute], origin]")
        return Distance(of.attribute, asked[2])
    if kind in ("Saturate", "Decay") and len(asked) == 3:
        return _curve(str(kind), _scores(asked[1], depth - 1, filter_depth), asked[2])
    if kind in _LEFT_OUT:
        raise UnsupportedError(f"{kind} in rank_by is not offered")
    is_comparison = len(asked) in (3, 4) and isinstance(asked[1], str)
    if kind is not None and (is_comparison or (kind in _COMBINED and len(asked) == 2)):
        return Matches(parse_filter(asked, filter_depth))
    raise InputError("rank_by is a list that says how documents are ranked")


def _part(value: object, depth: int, filter_depth: int) -> Expression:
    if isinstance(value, int | float):
        return Constant(_at_least_0(value, "a number in rank_by"))
    return _scores(value, depth, filter_depth)


def _curve(kind: str, part: Expression, value: object) -> Saturate | Decay:
    options = mapping(value, f"the options of {kind}")
    known_only(options, frozenset({"midpoint", "exponent"}), kind)
    midpoint = options.get("midpoint")
    is_time = isinstance(midpoint, str)
    if isinstance(midpoint, str):
        length = _DURATION.match(midpoint)
        if length is None:
            raise InputError(f"the midpoint of {kind} is a number, or a length of time such as '6h' or '7d'")
        midpoint = float(length[1]) * _MILLISECONDS[length[2]]
    exponent = options.get("exponent")
    found = number(midpoint, f"the midpoint of {kind}")
    steep = 1.0 if exponent is None else number(exponent, f"the exponent of {kind}")
    if found <= 0 or steep <= 0:
        raise InputError(f"midpoint and exponent of {kind} are greater than 0")
    return (Saturate if kind == "Saturate" else Decay)(part, found, steep, is_time)


def _at_least_0(value: object, what: str) -> float:
    found = number(value, what)
    if found < 0:
        raise InputError(f"{what} is at least 0")
    return found


def _words(asked: list[Any]) -> Expression:
    text = asked[2]
    if isinstance(text, list) and all(isinstance(one, str) for one in text):
        text = " ".join(text)
    if not isinstance(text, str) or not text.strip():
        raise InputError("BM25 takes a text with at least one word")
    if len(text) > _MOST_CHARACTERS:
        raise InputError(f"BM25 takes a text of at most {_MOST_CHARACTERS:,} characters")
    if len(asked) == 4:
        options = mapping(asked[3], "the options of BM25")
        known_only(options, frozenset({"last_as_prefix"}), "BM25")
        if flag(options, "last_as_prefix"):
            return _last_as_prefix(asked[0], text)
    return Words(asked[0], text)


def _last_as_prefix(attribute: str, text: str) -> Expression:
    """Return a ranking by words, with a score of 1 for words that begin with the last one."""
    found = tokens(text)
    if not found:
        raise InputError("BM25 takes a text with at least one word")
    begun = Comparison(check_attribute_name(attribute), Operator.ANY_TOKEN, found[-1], last_as_prefix=True)
    last = Matches(begun, is_prefix=True)
    if len(found) == 1:
        return last
    return Sum((Words(attribute, text.rpartition(found[-1])[0]), last))


def shown_answer(answer: Answer, *, base64: bool) -> dict[str, Any]:
    """Return the result of a query in the dialect's form."""
    if answer.groups is not None:
        return {"aggregation_groups": answer.groups}
    if answer.aggregates is not None:
        return {"aggregations": dict(answer.aggregates)}
    assert answer.rows is not None
    names_ = answer.rows.schema.names
    first = [name for name in (ID, DISTANCE) if name in names_]
    rows = answer.rows.select([*first, *[name for name in names_ if name not in first]])
    return {"rows": documents_of(rows, rows.schema.names, base64=base64)}
