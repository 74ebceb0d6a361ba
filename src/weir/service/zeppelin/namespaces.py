"""Creation and display of namespaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from weir.errors import InputError
from weir.namespaces import Attribute, Definition, FullText, Metric, Namespace, parse_type
from weir.namespaces.attributes import AttributeType, Kind
from weir.namespaces.indexes import INDEX
from weir.namespaces.names import ID, VECTOR, check_attribute_name
from weir.namespaces.state_report import uncompacted
from weir.namespaces.statistics import statistics_of
from weir.service.fields import chosen, flag, given, known_only, mapping, number, whole
from weir.service.openapi import members
from weir.service.turbopuffer.schema import check_constants
from weir.service.zeppelin.shapes import Create, FieldShape

__all__ = [
    "definition_of",
    "generation_of",
    "is_same",
    "moment",
    "shown_compaction",
    "shown_namespace",
    "with_index_config",
]

_METRICS = {"cosine": Metric.COSINE, "euclidean": Metric.EUCLIDEAN, "dot_product": Metric.DOT}
_NAMES = {metric: name for name, metric in _METRICS.items()}
_FULL_TEXT = members(FieldShape)
_INDEX_CONFIG: dict[str, Any] = {
    "nlist": 256,
    "quantization": "two_bit",
    "pq_m": 8,
    "hierarchical": False,
    "fts_index": False,
    "bitmap_index": True,
}
_KINDS = {"none": "IVF_FLAT", "two_bit": "IVF_FLAT", "scalar": "IVF_HNSW_SQ", "product": "IVF_PQ"}
_MOST_DIMENSIONS = 10_752
_FAILURES_DEGRADED = 5


def definition_of(body: Mapping[str, Any]) -> Definition:
    """Parse the definition of a namespace.

    Raises
    ------
    InputError
        If it is not valid.
    """
    known_only(body, members(Create), "a namespace")
    if body.get("dimensions") is None:
        raise InputError("dimensions is required")
    dimensions = whole(body, "dimensions", 1, _MOST_DIMENSIONS, 1)
    metric = chosen(body.get("distance_metric", "cosine"), _METRICS, "distance_metric")
    config = _index_config(given(body, "index_config", {}), _INDEX_CONFIG)
    vector = Attribute(
        name=VECTOR,
        type=parse_type(f"[{dimensions}]f32"),
        metric=_METRICS[metric],
        options={INDEX: _index(config, dimensions)},
    )
    attributes = {VECTOR: vector}
    for name, value in mapping(given(body, "full_text_search", {}), "full_text_search").items():
        check_attribute_name(name)
        if name in (ID, VECTOR):
            raise InputError(f"a field of text is not called {name!r}")
        attributes[name] = Attribute(
            name=name, type=AttributeType(Kind.STRING), full_text=_full_text(name, mapping(value, name))
        )
    definition = Definition.new(Kind.STRING, _METRICS[metric], {"index_config": config})
    return replace(definition, attributes=attributes)


def _full_text(name: str, asked: Mapping[str, Any]) -> FullText:
    known_only(asked, _FULL_TEXT, f"full_text_search of {name!r}")
    if asked.get("language", "english") != "english":
        raise InputError("the language of a field is english")
    k1, b = number(asked.get("k1", 1.2), "k1"), number(asked.get("b", 0.75), "b")
    check_constants(k1, b)
    return FullText(
        stemming=flag(asked, "stemming", True),
        remove_stopwords=flag(asked, "remove_stopwords", True),
        case_sensitive=flag(asked, "case_sensitive"),
        max_token_length=whole(asked, "max_token_length", 1, 1000, 40),
        k1=k1,
        b=b,
    )


def _index_config(value: object, before: Mapping[str, Any]) -> dict[str, Any]:
    asked = mapping(value, "index_config")
    known_only(asked, frozenset(_INDEX_CONFIG), "index_config")
    config = dict(before)
    for name in ("nlist", "pq_m"):
        config[name] = whole(asked, name, 1, 65_536, config[name])
    for name in ("hierarchical", "fts_index", "bitmap_index"):
        config[name] = flag(asked, name, config[name])
    config["quantization"] = chosen(asked.get("quantization", config["quantization"]), _KINDS, "quantization")
    return config


def _index(config: Mapping[str, Any], dimensions: int) -> dict[str, Any]:
    """Return the index for a configuration."""
    kind = _KINDS[config["quantization"]]
    index: dict[str, Any] = {"kind": kind, "num_partitions": config["nlist"]}
    if kind == "IVF_PQ":
        parts = config["pq_m"]
        if dimensions % parts:
            raise InputError(f"pq_m {parts} does not divide {dimensions} dimensions")
        index["num_sub_vectors"] = parts
    return index


def with_index_config(definition: Definition, value: object) -> Definition:
    """Return a definition with another index configuration, used by the next compaction.

    Raises
    ------
    InputError
        If the configuration is not valid.
    """
    if not mapping(value, "index_config"):
        raise InputError("index_config says at least one thing")
    config = _index_config(value, {**_INDEX_CONFIG, **definition.dialect.get("index_config", {})})
    vector = definition.attributes[VECTOR]
    dimensions = vector.type.dimensions or 1
    changed = replace(vector, options={**vector.options, INDEX: _index(config, dimensions)})
    known = definition.with_attributes({VECTOR: changed})
    return replace(known, dialect={**definition.dialect, "index_config": config})


def is_same(one: Definition, other: Definition) -> bool:
    """Whether two definitions are the same."""

    def asked(definition: Definition) -> object:
        texts = {name: field.full_text for name, field in definition.attributes.items() if field.full_text}
        vector = definition.attributes.get(VECTOR)
        return vector and (vector.type, vector.metric), texts, dict(definition.dialect)

    return asked(one) == asked(other)


def moment(value: Any) -> str:
    """Format a time."""
    text: str = value.isoformat()
    return text


def shown_namespace(namespace: Namespace) -> dict[str, Any]:
    """Return a namespace in the dialect's form."""
    opened = namespace.opened()
    definition = opened.definition
    statistics = statistics_of(namespace, fresh=True)
    compaction = shown_compaction(namespace)
    vector = definition.attributes.get(VECTOR)
    indexes = [
        index for index in opened.table.indexes.list() if index.definition and index.definition.kind.is_vector
    ]
    kind = str(indexes[0].definition.kind) if indexes and indexes[0].definition else "IVF_FLAT"
    config = {**_INDEX_CONFIG, **definition.dialect.get("index_config", {})}
    last = opened.last_upkeep
    shown: dict[str, Any] = {
        "name": namespace.name,
        "dimensions": vector.type.dimensions if vector is not None else 0,
        "distance_metric": _NAMES[(vector.metric if vector is not None else None) or definition.metric],
        "vector_count": namespace.count(),
        "uncompacted_fragments": compaction["uncompacted_fragments"],
        "segment_count": compaction["segment_count"],
        "approximate_storage_bytes": statistics.bytes,
        "quantization": config["quantization"] if indexes else None,
        "index_kind": {"IVF_PQ": "ivf_pq", "IVF_HNSW_SQ": "ivf_sq"}.get(kind, "ivf_flat"),
        "index_config": config,
        "active_segment_vector_count": compaction["active_segment_vector_count"],
        "last_compaction_at": None if last.finished_at is None else moment(last.finished_at),
        "last_compaction_status": last.outcome,
        "consecutive_compaction_failures": last.failures,
        "index_degraded": last.failures >= _FAILURES_DEGRADED,
        "created_at": moment(definition.created_at),
        "updated_at": moment(statistics.updated_at),
        "state": "active",
    }
    if last.error:
        shown["last_compaction_error"] = last.error
    texts = {name: one.full_text for name, one in definition.attributes.items() if one.full_text is not None}
    if texts:
        shown["full_text_search"] = {
            name: {key: value for key, value in asdict(one).items() if key in _FULL_TEXT}
            for name, one in texts.items()
        }
    return shown


def generation_of(base_version: int, positions: Iterable[int]) -> int:
    """Return the number of a state: every write and every commit of the base table makes it higher.

    Parameters
    ----------
    base_version : int
        Version of the base table.
    positions : iterable of int
        The last log position of every shard.
    """
    return base_version + sum(positions)


def shown_compaction(namespace: Namespace) -> dict[str, Any]:
    """Return the merge progress of a namespace."""
    opened = namespace.opened()
    status = opened.table.status()
    waiting = uncompacted(opened.table, status, opened.entries)
    merged = status.base_rows > 0
    return {
        "namespace": namespace.name,
        "manifest_generation": generation_of(
            status.base_version, (shard.wal_position for shard in status.shards)
        ),
        "uncompacted_fragments": waiting,
        "segment_count": int(merged),
        "active_segment": f"segment-{status.base_version}" if merged else None,
        "active_segment_vector_count": status.base_rows,
        "ready": not waiting and not opened.keeping_up.locked(),
    }
