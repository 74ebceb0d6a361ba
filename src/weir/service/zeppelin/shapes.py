"""The request and response types of the dialect, from which the API description is generated."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

__all__ = [
    "BatchAnswer",
    "BatchBody",
    "Clone",
    "Cloned",
    "Compacting",
    "Compaction",
    "Config",
    "Create",
    "CreateKey",
    "Created",
    "CreatedKey",
    "Deletion",
    "Fetch",
    "Fetched",
    "FieldShape",
    "Hydrating",
    "IndexConfig",
    "IndexConfigured",
    "Keys",
    "LeaseShape",
    "ManifestShape",
    "NamespaceShape",
    "QueryAnswer",
    "QueryBody",
    "RevokedKey",
    "Rotate",
    "Snapshot",
    "Snapshots",
    "State",
    "Upsert",
    "Upserted",
    "VectorShape",
]

Name = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9\-_.]+$")]
Count = Annotated[int, Meta(ge=1, le=10_000)]
Filter = Annotated[dict[str, Any], Meta(description="An op, and what it takes")]
Vector = Annotated[list[float], Meta(min_length=1)]
MetricName = Literal["cosine", "euclidean", "dot_product"]


class FieldShape(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How a field is searched for words."""

    language: str | UnsetType = UNSET
    stemming: bool | UnsetType = UNSET
    remove_stopwords: bool | UnsetType = UNSET
    case_sensitive: bool | UnsetType = UNSET
    k1: Annotated[float, Meta(ge=0)] | UnsetType = UNSET
    b: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    max_token_length: Annotated[int, Meta(ge=1, le=1000)] | UnsetType = UNSET


class IndexConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How vectors are indexed."""

    nlist: Annotated[int, Meta(ge=1, le=65_536)] | UnsetType = UNSET
    quantization: Literal["none", "two_bit", "scalar", "product"] | UnsetType = UNSET
    pq_m: Annotated[int, Meta(ge=1, le=65_536)] | UnsetType = UNSET
    hierarchical: bool | UnsetType = UNSET
    fts_index: bool | UnsetType = UNSET
    bitmap_index: bool | UnsetType = UNSET


class Create(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A namespace to create."""

    dimensions: Annotated[int, Meta(ge=1, le=10_752)]
    name: Name | UnsetType | None = UNSET
    distance_metric: MetricName | UnsetType = UNSET
    full_text_search: dict[str, FieldShape] | UnsetType | None = UNSET
    index_config: IndexConfig | UnsetType | None = UNSET


class NamespaceShape(msgspec.Struct, kw_only=True):
    """A namespace."""

    name: str
    dimensions: int
    distance_metric: MetricName
    vector_count: int
    uncompacted_fragments: int
    segment_count: int
    approximate_storage_bytes: int
    quantization: str | None
    index_kind: str
    index_config: IndexConfig
    active_segment_vector_count: int
    last_compaction_at: datetime | None
    last_compaction_status: Literal["never", "success", "failure"]
    consecutive_compaction_failures: int
    index_degraded: bool
    created_at: datetime
    updated_at: datetime
    state: Literal["active"]
    last_compaction_error: str | UnsetType = UNSET
    full_text_search: dict[str, FieldShape] | UnsetType = UNSET


class Created(NamespaceShape, kw_only=True):
    """A namespace that was created, or existed with the same definition."""

    warning: str


class State(msgspec.Struct, kw_only=True):
    """The status of a namespace."""

    state: Literal["deleting"]


class Compaction(msgspec.Struct, kw_only=True):
    """The merge progress of a namespace."""

    namespace: str
    manifest_generation: int
    uncompacted_fragments: int
    segment_count: int
    active_segment: str | None
    active_segment_vector_count: int
    ready: bool


class Compacting(Compaction, kw_only=True):
    """Whether a compaction starts."""

    status: Literal["noop", "accepted"]


class Hydrating(msgspec.Struct, kw_only=True):
    """What is being cached."""

    namespace: str
    segment_id: str


class IndexConfigured(msgspec.Struct, kw_only=True):
    """The vector index from the next compaction on."""

    namespace: str
    index_config: IndexConfig
    status: Literal["accepted"]
    observe: str


class FragmentShape(msgspec.Struct, kw_only=True):
    """An unmerged log entry or generation."""

    id: str
    key: str
    vector_count: int
    delete_count: int
    created_at: datetime


class SegmentShape(msgspec.Struct, kw_only=True):
    """What is merged."""

    id: str
    key_prefix: str
    vector_count: int
    centroid_count: int
    quantization: str | None
    bitmap_fields: list[str]
    fts_fields: list[str]
    created_at: datetime


class ManifestShape(msgspec.Struct, kw_only=True):
    """The structure of a namespace."""

    fragments: list[FragmentShape]
    segments: list[SegmentShape]
    pending_deletes: list[Any]
    fencing_token: int
    updated_at: datetime


class LeaseShape(msgspec.Struct, kw_only=True):
    """Who writes a namespace."""

    holder: str
    fencing_token: int
    acquired_at: datetime
    expires_at: datetime


class VectorShape(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A vector with its attributes."""

    id: Annotated[str, Meta(min_length=1, max_length=64)]
    values: Vector
    attributes: dict[str, Any] | UnsetType | None = UNSET


class Upsert(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Vectors to write; in MessagePack also ``columnar``."""

    vectors: Annotated[list[VectorShape], Meta(min_length=1)] | UnsetType = UNSET
    columnar: Any | UnsetType = UNSET


class Upserted(msgspec.Struct, kw_only=True):
    """The number of vectors written."""

    upserted: int


class Deletion(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Vectors to delete, by ids or by a filter."""

    ids: Annotated[list[str], Meta(min_length=1, max_length=10000)] | UnsetType | None = UNSET
    filter: Filter | UnsetType | None = UNSET


class Fetch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Vectors to return, by ids."""

    ids: Annotated[list[str], Meta(min_length=1, max_length=10_000)]
    include_vector: bool | UnsetType | None = UNSET
    include_attributes: bool | UnsetType | None = UNSET
    attribute_fields: Annotated[list[str], Meta(min_length=1)] | UnsetType | None = UNSET
    consistency: Literal["strong", "eventual"] | UnsetType | None = UNSET


class FetchedVector(msgspec.Struct, kw_only=True):
    """A vector."""

    id: str
    values: list[float] | UnsetType = UNSET
    attributes: dict[str, Any] | UnsetType = UNSET


class Fetched(msgspec.Struct, kw_only=True):
    """Vectors, and ids that do not exist."""

    results: list[FetchedVector]
    missing: list[str]


class QueryBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A query: sources, and the processing of their candidates."""

    vector: Vector | UnsetType | None = UNSET
    rank_by: list[Any] | UnsetType | None = UNSET
    sources: Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=8)] | UnsetType | None = UNSET
    last_as_prefix: bool | UnsetType | None = UNSET
    top_k: Count | UnsetType | None = UNSET
    candidate_k: Count | UnsetType | None = UNSET
    filter: Filter | UnsetType | None = UNSET
    consistency: Literal["strong", "eventual"] | UnsetType = UNSET
    nprobe: Annotated[int, Meta(ge=1, le=256)] | UnsetType | None = UNSET
    include_attributes: bool | UnsetType | None = UNSET
    fusion: dict[str, Any] | UnsetType | None = UNSET
    rerank: dict[str, Any] | UnsetType | None = UNSET
    grouping: dict[str, Any] | UnsetType | None = UNSET
    facets: list[Annotated[str, Meta(min_length=1)]] | UnsetType | None = UNSET
    projection: dict[str, Any] | UnsetType | None = UNSET
    cursor: dict[str, Any] | UnsetType | None = UNSET
    explain: bool | Literal["none", "plan", "full"] | UnsetType = UNSET
    debug: bool | UnsetType | None = UNSET


class Result(msgspec.Struct, kw_only=True):
    """A vector in a result."""

    id: str
    score: float
    attributes: dict[str, Any] | None


class Group(msgspec.Struct, kw_only=True):
    """Vectors with one value of a field."""

    key: str
    results: list[Result]


class QueryAnswer(msgspec.Struct, kw_only=True):
    """The result of a query."""

    results: list[Result]
    scanned_fragments: int
    scanned_segments: int
    groups: list[Group] | UnsetType = UNSET
    facets: dict[str, dict[str, int]] | UnsetType = UNSET
    next_cursor: str | UnsetType = UNSET
    explain: dict[str, Any] | UnsetType = UNSET
    debug: dict[str, Any] | UnsetType = UNSET


class BatchBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Several queries."""

    queries: Annotated[list[QueryBody], Meta(min_length=1)]


class OneOfBatch(msgspec.Struct, kw_only=True):
    """The outcome of one of several queries."""

    ok: bool
    metadata: dict[str, Any]
    response: QueryAnswer | UnsetType = UNSET
    error: dict[str, Any] | UnsetType = UNSET


class BatchAnswer(msgspec.Struct, kw_only=True):
    """The outcomes of several queries."""

    results: list[OneOfBatch]


class Snapshot(msgspec.Struct, kw_only=True):
    """A saved state."""

    name: str
    generation: int
    created_at: datetime


class Snapshots(msgspec.Struct, kw_only=True):
    """The saved states."""

    snapshots: list[Snapshot]


class Clone(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which state to copy to which namespace."""

    target: Name
    as_of: str


class Cloned(msgspec.Struct, kw_only=True):
    """The copy."""

    source: str
    target: str
    generation: int
    target_generation: int
    mode: Literal["copy"]
    namespace: NamespaceShape


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The query defaults."""

    default_nprobe: Annotated[int, Meta(ge=1, le=256)] | UnsetType = UNSET
    default_top_k: Count | UnsetType = UNSET
    rerank_coalesce_gap_bytes: Annotated[int, Meta(ge=0, le=2**40)] | UnsetType = UNSET
    bm25_max_full_scan_vectors: Annotated[int, Meta(ge=0, le=2**40)] | UnsetType = UNSET
    bm25_max_full_scan_clusters: Annotated[int, Meta(ge=0, le=2**40)] | UnsetType = UNSET
    cost_latency_profile: Literal["low_latency", "balanced", "low_cost"] | UnsetType | None = UNSET


class CreateKey(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A key to create."""

    name: Annotated[str, Meta(min_length=1)]
    role: Literal["admin", "writer", "reader"]
    namespaces: list[str] | UnsetType | None = UNSET
    expires_in_secs: Annotated[int, Meta(ge=1, le=10**9)] | UnsetType | None = UNSET


class Rotate(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How to rotate a key."""

    overlap_secs: int | UnsetType | None = UNSET
    expires_in_secs: Annotated[int, Meta(ge=1, le=10**9)] | UnsetType | None = UNSET


class CreatedKey(msgspec.Struct, kw_only=True):
    """A key with its text, which is shown once."""

    id: str
    key: str
    key_id: str
    api_key: str
    policy_version: int
    rotated_from: str | UnsetType = UNSET


class RevokedKey(msgspec.Struct, kw_only=True):
    """A revoked key."""

    key_id: str
    policy_version: int


class KeyShape(msgspec.Struct, kw_only=True):
    """A key without its text."""

    key_id: str
    name: str
    principal_id: str
    role: Literal["admin", "writer", "reader"]
    namespaces: list[str]
    created_at: datetime
    expires_at: datetime | None
    revokes_at: datetime | None
    rotated_from: str | None
    state: Literal["active", "expired"]


class Keys(msgspec.Struct, kw_only=True):
    """The keys."""

    keys: list[KeyShape]
    policy_version: int
