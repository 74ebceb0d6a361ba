"""Queries of the dialect: candidates of several sources, fused, reranked, grouped, counted and paged."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from weir.errors import InputError, UnsupportedError
from weir.namespaces import Answer, Limit, Metric, Namespace, Nearest, Query, State
from weir.namespaces.filter.expression import EVERYTHING, And, Comparison, Filter, Not, Operator
from weir.namespaces.names import ID, VECTOR
from weir.namespaces.query import MOST_ROWS
from weir.namespaces.ranking import Expression, Order, Ranking, is_of_words, texts_in
from weir.namespaces.reading import DISTANCE
from weir.namespaces.state_report import uncompacted
from weir.namespaces.statistics import statistics_of
from weir.namespaces.values import documents_of
from weir.namespaces.vectors import one_vector
from weir.service.fields import flag, given, known_only, mapping, names, number, sequence
from weir.service.limits import MOST_ANSWER_BYTES
from weir.service.openapi import members
from weir.service.refusals import Refusal
from weir.service.turbopuffer.queries import parse_ranking
from weir.service.zeppelin.cursors import Cursor, Cursors
from weir.service.zeppelin.filters import parse_filter
from weir.service.zeppelin.shapes import QueryBody

__all__ = ["Asked", "answer_query", "parse_query"]

_SECONDS_EVENTUAL = 60.0
_LEAST_CANDIDATES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A ranking that yields candidates."""

    type: str
    ranking: Ranking | None = None
    like: str | None = None
    nprobe: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A query, checked as far as possible without a namespace."""

    body: Mapping[str, Any]
    path: str
    sources: tuple[Source, ...]
    top_k: int
    candidate_k: int
    retrieved: int
    filter: Filter
    consistency: str
    fusion: Mapping[str, Any]
    rerank: Mapping[str, Any] | None
    grouping: tuple[str, int] | None
    facets: tuple[str, ...]
    include_attributes: bool
    fields: tuple[str, ...] | None
    cursor: Mapping[str, Any] | None
    explain: str
    debug: bool


@dataclass(slots=True)
class Candidate:
    """A document, with its scores from each source."""

    document: dict[str, Any]
    score: float = 0.0
    rerank_score: float | None = None
    parts: list[dict[str, Any]] = field(default_factory=list)


def parse_query(body: Mapping[str, Any], *, depth: int, default_top_k: int, default_nprobe: int) -> Asked:
    """Parse a query.

    Raises
    ------
    InputError, UnsupportedError
        If it is not valid.
    """
    known_only(body, members(QueryBody), "a query")
    top_k = _count(body, "top_k", default_top_k, MOST_ROWS)
    if flag(body, "last_as_prefix"):
        raise UnsupportedError("last_as_prefix")
    projection = mapping(given(body, "projection", {}), "projection")
    known_only(projection, frozenset({"include_attributes", "fields", "include_vectors"}), "projection")
    if body.get("include_attributes") is not None and projection.get("include_attributes") is not None:
        raise InputError("a query says include_attributes itself or in its projection, and not both")
    if flag(projection, "include_vectors"):
        raise UnsupportedError("vector projection")
    fields = projection.get("fields")
    path, sources = _sources(body, default_nprobe)
    rerank = _typed(body.get("rerank"), "rerank", {"vector": {"vector"}, "bm25": {"rank_by"}})
    cursor = body.get("cursor")
    grows = len(sources) > 1 or rerank is not None or body.get("grouping") or body.get("facets") or cursor
    candidate_k = _count(body, "candidate_k", min(max(4 * top_k, _LEAST_CANDIDATES), MOST_ROWS), MOST_ROWS)
    candidate_k = max(candidate_k, 1 if cursor else top_k)
    consistency = body.get("consistency", "strong")
    if consistency not in ("strong", "eventual"):
        raise InputError("consistency is strong or eventual")
    explain = body.get("explain", "none")
    if isinstance(explain, bool):
        explain = "full" if explain else "none"
    if explain not in ("none", "plan", "full"):
        raise InputError("explain is none, plan or full")
    grouping = _typed(body.get("grouping"), "grouping", {"field": {"field", "max_per_group"}})
    return Asked(
        body=body,
        path=path,
        sources=sources,
        top_k=top_k,
        candidate_k=candidate_k,
        retrieved=candidate_k if grows else top_k,
        filter=EVERYTHING if body.get("filter") is None else parse_filter(body["filter"], depth),
        consistency=consistency,
        fusion=_fusion(body.get("fusion"), len(sources)),
        rerank=rerank,
        grouping=None
        if grouping is None
        else (_text(grouping, "field"), _count(grouping, "max_per_group", 1, MOST_ROWS)),
        facets=_facet_fields(given(body, "facets", [])),
        include_attributes=flag(body, "include_attributes", True)
        and flag(projection, "include_attributes", True),
        fields=None if fields is None else names(fields, "fields"),
        cursor=None if cursor is None else mapping(cursor, "cursor"),
        explain=explain,
        debug=flag(body, "debug"),
    )


def _facet_fields(value: object) -> tuple[str, ...]:
    fields = names(value, "facets")
    if "" in fields:
        raise InputError("facets names fields")
    return fields


def _count(body: Mapping[str, Any], name: str, default: int, most: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name} must be a whole number")
    if value < 1:
        raise InputError(f"{name} must be >= 1")
    if value > most:
        raise InputError(f"{name} must be <= {most}")
    return value


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise InputError(f"{name} is a text")
    return value


def _typed(value: object, what: str, members_of: Mapping[str, set[str]]) -> Mapping[str, Any] | None:
    """Return a member tagged by ``type``; None for the types that mean nothing."""
    if value is None:
        return None
    asked = mapping(value, what)
    kind = asked.get("type")
    if kind in ("none", "default"):
        known_only(asked, frozenset({"type"}), what)
        return None
    if not isinstance(kind, str) or kind not in members_of:
        raise InputError(f"{what} is of type {', '.join(members_of)} or none")
    known_only(asked, frozenset({"type", *members_of[kind]}), what)
    return asked


def _sources(body: Mapping[str, Any], default_nprobe: int) -> tuple[str, tuple[Source, ...]]:
    kinds = [name for name in ("vector", "rank_by", "sources") if body.get(name) is not None]
    if len(kinds) != 1:
        raise InputError("a query has exactly one of vector, rank_by and sources")
    nprobe = _count(body, "nprobe", default_nprobe, 256)
    if kinds == ["vector"]:
        ranking = Nearest(VECTOR, one_vector(body["vector"]))
        return "legacy_vector", (Source(type="ann", ranking=ranking, nprobe=nprobe),)
    if kinds == ["rank_by"]:
        return "legacy_bm25", (Source(type="bm25", ranking=_words(body["rank_by"])),)
    asked = sequence(body["sources"], "sources")
    if not 1 <= len(asked) <= 8:
        raise InputError("sources is a list of 1 to 8")
    sources = tuple(_source(mapping(one, "a source"), nprobe) for one in asked)
    return "algebra_single" if len(sources) == 1 else "algebra_hybrid", sources


def _source(asked: Mapping[str, Any], default_nprobe: int) -> Source:
    kind = asked.get("type")
    if kind == "late_interaction":
        raise UnsupportedError("late_interaction")
    if kind == "bm25":
        known_only(asked, frozenset({"type", "rank_by", "last_as_prefix"}), "a source")
        if flag(asked, "last_as_prefix"):
            raise UnsupportedError("last_as_prefix")
        return Source(type="bm25", ranking=_words(asked.get("rank_by")))
    if kind != "ann":
        raise InputError("a source is of type ann or bm25")
    known_only(asked, frozenset({"type", "vector", "id", "nprobe"}), "a source")
    nprobe = _count(asked, "nprobe", default_nprobe, 256)
    if (asked.get("vector") is None) == (asked.get("id") is None):
        raise InputError("an ann source has a vector or an id")
    if asked.get("id") is not None:
        return Source(type="ann", like=_text(asked, "id"), nprobe=nprobe)
    return Source(type="ann", ranking=Nearest(VECTOR, one_vector(asked["vector"])), nprobe=nprobe)


def _words(value: object) -> Expression:
    ranking = parse_ranking(value)
    if isinstance(ranking, Nearest | Order) or not is_of_words(ranking):
        raise InputError("rank_by is [field, 'BM25', words], or Sum, Max and Product of such")
    return ranking


def _fusion(value: object, sources: int) -> Mapping[str, Any]:
    asked = _typed(value, "fusion", {"rrf": {"k"}, "weighted": {"weights"}})
    if asked is None:
        if sources > 1 and value is not None:
            raise InputError("fusion of type none is for one source")
        return {"type": "none"} if sources == 1 else {"type": "rrf", "k": 60}
    if asked["type"] == "rrf":
        return {"type": "rrf", "k": _count(asked, "k", 60, 1_000_000)}
    weights = [number(one, "a weight") for one in sequence(asked.get("weights"), "weights")]
    if len(weights) != sources or min(weights) < 0 or sum(weights) <= 0:
        raise InputError("weights has a number of at least 0 for each source")
    return {"type": "weighted", "weights": weights}


def answer_query(namespace: Namespace, asked: Asked, cursors: Cursors, key_id: str) -> dict[str, Any]:
    """Return the result of a query in the dialect's form.

    Raises
    ------
    InputError, Refusal
        If the namespace does not support it.
    """
    definition = namespace.definition
    cursor = _cursor(asked, namespace, cursors, key_id)
    needed = _needed(asked)
    include = None if needed is None else tuple(needed)
    state = State(max_staleness=_SECONDS_EVENTUAL if asked.consistency == "eventual" else None)
    if cursor is not None:
        state = State(token=cursor.token)
    elif asked.cursor is not None or len(asked.sources) > 1 or asked.rerank is not None:
        state = State(token=namespace.token())
    rankings, where = _rankings(namespace, asked, state)
    queries = [
        Query(
            rank_by=ranking,
            filter=where,
            limit=Limit(asked.retrieved),
            include=include,
            exclude=frozenset({VECTOR}),
            nprobes=source.nprobe,
        )
        for ranking, source in zip(rankings, asked.sources, strict=True)
    ]
    found = namespace.queries(queries, state, MOST_ANSWER_BYTES)
    answers = [one.rows for one in found]
    metric = definition.attributes[VECTOR].metric or definition.metric
    tables = [
        _scored(rows, source, metric)
        for rows, source in zip(answers, asked.sources, strict=True)
        if rows is not None
    ]
    candidates = _fused(tables, asked)
    if asked.rerank is not None:
        candidates = _reranked(namespace, candidates, asked, state, metric)
    facets = _facets(candidates, asked.facets)
    offset = 0 if cursor is None else cursor.offset
    page, groups, is_last = _page(candidates, asked, offset)
    shown = [_shown(one, asked) for one in page]
    fragments, segments = _scanned(namespace)
    answer: dict[str, Any] = {
        "results": shown,
        "scanned_fragments": fragments * len(asked.sources),
        "scanned_segments": segments * len(asked.sources),
    }
    if groups is not None:
        answer["groups"] = [
            {"key": key, "results": [_shown(one, asked) for one in members]} for key, members in groups
        ]
    if asked.facets:
        answer["facets"] = facets
    if asked.cursor is not None and not is_last and state.token is not None:
        after = Cursor(state.token, offset + asked.top_k)
        answer["next_cursor"] = cursors.issue(after, namespace.name, key_id, asked.body)
    if asked.explain != "none":
        answer["explain"] = _explained(asked, page)
    if asked.debug:
        answer["debug"] = {**_debug(asked, fragments, segments, len(page)), **_state(namespace, found[0])}
    return answer


def _cursor(asked: Asked, namespace: Namespace, cursors: Cursors, key_id: str) -> Cursor | None:
    if asked.cursor is None or asked.cursor.get("type") == "none":
        return None
    if asked.cursor.get("type") != "after":
        raise InputError("a cursor is of type none or after")
    return cursors.read(asked.cursor.get("token"), namespace.name, key_id, asked.body)


def _needed(asked: Asked) -> list[str] | None:
    """Return the attributes needed for the response; None for all."""
    also = [*asked.facets, *([asked.grouping[0]] if asked.grouping else [])]
    if not asked.include_attributes:
        return also
    return None if asked.fields is None else [*asked.fields, *also]


def _rankings(namespace: Namespace, asked: Asked, state: State) -> tuple[list[Ranking], Filter]:
    definition = namespace.definition
    dimensions = definition.attributes[VECTOR].type.dimensions
    rankings: list[Ranking] = []
    left_out: list[str] = []
    for source in asked.sources:
        ranking = source.ranking
        if source.like is not None:
            rows = namespace.get([source.like], [VECTOR], state)
            if not rows.num_rows:
                raise InputError(f"there is no vector {source.like!r:.80}")
            values = rows.column(VECTOR).combine_chunks().flatten().to_numpy(zero_copy_only=False)
            ranking = Nearest(VECTOR, values.astype(np.float32))
            left_out.append(source.like)
        assert ranking is not None
        if isinstance(ranking, Nearest):
            _check_dimensions(ranking, dimensions)
        else:
            _check_texts(ranking, definition.attributes)
        rankings.append(ranking)
    where = asked.filter
    if left_out:
        where = And((where, Not(Comparison(ID, Operator.IN, tuple(left_out)))))
    return rankings, where


def _check_dimensions(ranking: Nearest, dimensions: int | None) -> None:
    if len(ranking.vector) != dimensions:
        raise Refusal(
            400, "DIMENSION_MISMATCH", f"dimension mismatch: expected {dimensions}, got {len(ranking.vector)}"
        )


def _check_texts(ranking: Any, attributes: Mapping[str, Any]) -> None:
    for words in texts_in(ranking):
        known = attributes.get(words.attribute)
        if known is None or known.full_text is None:
            raise Refusal(
                400,
                "FTS_FIELD_NOT_CONFIGURED",
                f"full-text search is not configured for field {words.attribute!r}",
            )


def _scored(rows: pa.Table, source: Source, metric: Metric) -> list[tuple[dict[str, Any], float]]:
    """Return documents and scores, best first, ties ordered by id."""
    documents = documents_of(rows, rows.schema.names)
    scored = [(document, float(document.pop(DISTANCE))) for document in documents]
    if source.type == "ann" and metric is Metric.DOT:
        scored = [(document, score - 1.0) for document, score in scored]
    sign = 1.0 if source.type == "ann" else -1.0
    return sorted(scored, key=lambda one: (sign * one[1], one[0][ID]))


def _fused(tables: Sequence[list[tuple[dict[str, Any], float]]], asked: Asked) -> list[Candidate]:
    found: dict[str, Candidate] = {}
    for index, (scored, source) in enumerate(zip(tables, asked.sources, strict=True)):
        scores = [score for _, score in scored]
        low, high = (min(scores), max(scores)) if scores else (0.0, 0.0)
        for rank, (document, score) in enumerate(scored, start=1):
            candidate = found.setdefault(document[ID], Candidate(document))
            part: dict[str, Any] = {"index": index, "type": source.type, "raw_score": _short(score)}
            if asked.fusion["type"] == "none":
                part["contribution"] = _short(score)
                candidate.score = score
            elif asked.fusion["type"] == "rrf":
                gained = 1.0 / (asked.fusion["k"] + rank)
                part["contribution"] = _short(gained)
                candidate.score += gained
            else:
                share = 1.0 if high == low else (score - low) / (high - low)
                normalized = share if source.type == "bm25" or high == low else 1.0 - share
                gained = asked.fusion["weights"][index] * normalized
                part["normalized_score"] = _short(normalized)
                part["contribution"] = _short(gained)
                candidate.score += gained
            candidate.parts.append(part)
    if asked.fusion["type"] == "none":
        return list(found.values())
    ranked = sorted(found.values(), key=lambda one: (-one.score, one.document[ID]))
    return ranked[: asked.candidate_k] if asked.cursor is None else ranked


def _reranked(
    namespace: Namespace, candidates: list[Candidate], asked: Asked, state: State, metric: Metric
) -> list[Candidate]:
    """Return candidates reranked by another ranking."""
    assert asked.rerank is not None
    if not candidates:
        return candidates
    by_vector = asked.rerank["type"] == "vector"
    definition = namespace.definition
    ranking: Ranking
    if by_vector:
        ranking = Nearest(VECTOR, one_vector(asked.rerank.get("vector")), exact=True)
        _check_dimensions(ranking, definition.attributes[VECTOR].type.dimensions)
    else:
        ranking = _words(asked.rerank.get("rank_by"))
        _check_texts(ranking, definition.attributes)
    among = Comparison(ID, Operator.IN, tuple(one.document[ID] for one in candidates))
    [answer] = namespace.queries([Query(rank_by=ranking, filter=among, limit=Limit(len(candidates)))], state)
    assert answer.rows is not None
    source = Source(type="ann" if by_vector else "bm25")
    scores = {document[ID]: score for document, score in _scored(answer.rows, source, metric)}
    for one in candidates:
        one.rerank_score = scores.get(one.document[ID], float("inf") if by_vector else 0.0)
        one.score = one.rerank_score
    sign = 1.0 if by_vector else -1.0
    return sorted(candidates, key=lambda one: (sign * one.score, one.document[ID]))


def _facets(candidates: Sequence[Candidate], fields: Sequence[str]) -> dict[str, dict[str, int]]:
    facets: dict[str, dict[str, int]] = {}
    for name in fields:
        counts: dict[str, int] = {}
        for one in candidates:
            value = one.document.get(name)
            for each in value if isinstance(value, list) else [value]:
                if each is not None:
                    counts[_as_key(each)] = counts.get(_as_key(each), 0) + 1
        facets[name] = dict(sorted(counts.items()))
    return facets


def _as_key(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _page(
    candidates: Sequence[Candidate], asked: Asked, offset: int
) -> tuple[list[Candidate], list[tuple[str, list[Candidate]]] | None, bool]:
    """Return a page, grouped if requested, and whether it is the last one."""
    end = offset + asked.top_k
    if asked.grouping is None:
        return list(candidates[offset:end]), None, end >= len(candidates)
    name, most = asked.grouping
    groups: dict[tuple[str, str], list[Candidate]] = {}
    for one in candidates:
        value = one.document.get(name)
        # A document that lacks the field is a group of its own.
        members = groups.setdefault(
            ("id", one.document[ID]) if value is None else ("value", _as_key(value)), []
        )
        if len(members) < most:
            members.append(one)
    chosen = [(key, found) for (_, key), found in groups.items()][offset:end]
    return [one for _, members in chosen for one in members], chosen, end >= len(groups)


def _shown(one: Candidate, asked: Asked) -> dict[str, Any]:
    attributes: dict[str, Any] | None = None
    if asked.include_attributes:
        wanted = None if asked.fields is None else {*asked.fields}
        attributes = {
            name: value
            for name, value in one.document.items()
            if name != ID and value is not None and (wanted is None or name in wanted)
        }
    return {"id": one.document[ID], "score": _short(one.score), "attributes": attributes}


def _short(score: float) -> float:
    """Return a score with as few digits as float32 needs."""
    return float(str(np.float32(score))) if np.isfinite(score) else 3.4028235e38


def _scanned(namespace: Namespace) -> tuple[int, int]:
    opened = namespace.opened()
    status = opened.table.status()
    return uncompacted(opened.table, status, opened.entries), int(status.base_rows > 0)


def _explained(asked: Asked, page: Sequence[Candidate]) -> dict[str, Any]:
    plan = {
        "path": asked.path,
        "candidate_k": asked.candidate_k,
        "first_stage_top_k": asked.candidate_k if asked.rerank is not None else asked.top_k,
        "top_k": asked.top_k,
        "consistency": asked.consistency,
        "sources": [
            {
                "index": index,
                "type": source.type,
                "nprobe": source.nprobe,
                "candidate_k": asked.candidate_k,
                "score_direction": "lower_is_better" if source.type == "ann" else "higher_is_better",
            }
            for index, source in enumerate(asked.sources)
        ],
        "fusion": dict(asked.fusion),
        "rerank": None if asked.rerank is None else {"type": asked.rerank["type"]},
        "grouping": None
        if asked.grouping is None
        else {"type": "field", "field": asked.grouping[0], "max_per_group": asked.grouping[1]},
        "cursor": {
            "requested": asked.cursor is not None,
            "after": asked.cursor is not None and asked.cursor.get("type") == "after",
        },
        "facets": list(asked.facets),
        "projection": {"include_attributes": asked.include_attributes},
        "policy_filter_applied": False,
    }
    if asked.explain == "plan":
        return {"mode": "plan", "plan": plan}
    results = []
    for one in page:
        told = {
            "id": one.document[ID],
            "fused_score": _short(sum(part["contribution"] for part in one.parts)),
            "sources": one.parts,
        }
        results.append(
            told if one.rerank_score is None else {**told, "rerank_score": _short(one.rerank_score)}
        )
    return {"mode": "full", "plan": plan, "results": results}


def _state(namespace: Namespace, answer: Answer) -> dict[str, Any]:
    """Return the state of a response, its age, and the number of rows without a vector index."""
    return {
        "snapshot": answer.token,
        "snapshot_age_ms": int((time.monotonic() - answer.taken) * 1000),
        "unindexed_rows": statistics_of(namespace, fresh=True).unindexed_rows,
    }


def _debug(asked: Asked, fragments: int, segments: int, rows: int) -> dict[str, Any]:
    return {
        "wal_ms": 0,
        "segment_ms": 0,
        "merge_ms": 0,
        "fragments_scanned": fragments,
        "segments_scanned": segments,
        "clusters_probed": 0,
        "cache": {"hits": 0, "misses": 0},
        "consistency_effective": asked.consistency,
        "underfill_reason": None if rows >= asked.top_k else "not_enough_matches",
    }
