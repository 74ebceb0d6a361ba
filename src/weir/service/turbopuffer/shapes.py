"""The request and response types of the dialect, from which the API description is generated.

Parsers take the permitted members of bodies from here; values with their own syntax (filters, rankings,
documents) are lists and objects here, and are checked by their parsers.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

__all__ = [
    "AnnShape",
    "AttributeShape",
    "ChangedMetadata",
    "Copied",
    "Copy",
    "CopySource",
    "ExplainBody",
    "Explained",
    "FullTextShape",
    "Listing",
    "ListingParameters",
    "Metadata",
    "Operation",
    "PatchByFilter",
    "QueryAnswer",
    "QueryBody",
    "RecallAnswer",
    "RecallBody",
    "Schema",
    "Status",
    "SubQuery",
    "Token",
    "Warmed",
    "WriteAnswer",
    "WriteBody",
    "WriteParameters",
]

Id = Annotated[int, Meta(ge=0)] | Annotated[str, Meta(min_length=1, max_length=64)]
Filter = Annotated[list[Any], Meta(description="[attribute, operator, value], or And, Or and Not of such")]
Document = Annotated[dict[str, Any], Meta(description="An id, and a value for each attribute")]
Columns = Annotated[dict[str, Any], Meta(description="By attribute, the values of all documents")]
Rows = Annotated[int, Meta(ge=1, le=10_000)]
Names = list[str]
Type = Annotated[str, Meta(description="Such as string, []int, datetime or [768]f32")]
MetricName = Literal["cosine_distance", "euclidean_squared"]


class FullTextShape(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How an attribute is searched for words."""

    language: str | UnsetType = UNSET
    stemming: bool | UnsetType = UNSET
    remove_stopwords: bool | UnsetType = UNSET
    case_sensitive: bool | UnsetType = UNSET
    ascii_folding: bool | UnsetType = UNSET
    max_token_length: Annotated[int, Meta(ge=1, le=254)] | UnsetType = UNSET
    k1: Annotated[float, Meta(ge=0)] | UnsetType = UNSET
    b: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    tokenizer: str | UnsetType = UNSET


class AnnShape(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How the vectors of an attribute are compared."""

    distance_metric: str | UnsetType = UNSET
    late_interaction: bool | UnsetType = UNSET


class AttributeShape(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The declaration of an attribute."""

    type: Type | UnsetType = UNSET
    filterable: bool | UnsetType | None = UNSET
    full_text_search: bool | FullTextShape | UnsetType | None = UNSET
    ann: bool | AnnShape | UnsetType | None = UNSET
    glob: bool | UnsetType | None = UNSET
    regex: bool | UnsetType | None = UNSET
    fuzzy: bool | UnsetType | None = UNSET
    embed: Any | UnsetType = UNSET
    sparse_knn: Any | UnsetType = UNSET
    drop: bool | UnsetType = UNSET


Schema = dict[str, Type | AttributeShape]
"""The attributes of a namespace."""


class CopySource(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which namespace to copy."""

    source_namespace: str
    source_api_key: str | UnsetType | None = UNSET
    source_region: str | UnsetType | None = UNSET
    dest_encryption: Any | UnsetType = UNSET


class PatchByFilter(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """New values for every document that matches a filter."""

    filters: Filter
    patch: dict[str, Any]


class WriteBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A write, which is atomic."""

    upsert_rows: list[Document] | UnsetType | None = UNSET
    upsert_columns: Columns | UnsetType | None = UNSET
    patch_rows: list[Document] | UnsetType | None = UNSET
    patch_columns: Columns | UnsetType | None = UNSET
    deletes: list[Id] | UnsetType | None = UNSET
    delete_by_filter: Filter | UnsetType | None = UNSET
    delete_by_filter_allow_partial: bool | UnsetType | None = UNSET
    patch_by_filter: PatchByFilter | UnsetType | None = UNSET
    patch_by_filter_allow_partial: bool | UnsetType | None = UNSET
    upsert_condition: Filter | UnsetType | None = UNSET
    patch_condition: Filter | UnsetType | None = UNSET
    delete_condition: Filter | UnsetType | None = UNSET
    distance_metric: MetricName | UnsetType | None = UNSET
    schema: Schema | UnsetType | None = UNSET
    return_affected_ids: bool | UnsetType | None = UNSET
    create_namespace: bool | UnsetType | None = UNSET
    disable_backpressure: bool | UnsetType | None = UNSET
    copy_from_namespace: str | CopySource | UnsetType | None = UNSET
    branch_from_namespace: Any | UnsetType = UNSET
    encryption: Any | UnsetType = UNSET
    sharding: Any | UnsetType = UNSET


class WriteBilling(msgspec.Struct, kw_only=True):
    """The cost of a write in bytes."""

    billable_logical_bytes_written: int


class WritePerformance(msgspec.Struct, kw_only=True):
    """How long a write took."""

    server_total_ms: int


class WriteAnswer(msgspec.Struct, kw_only=True):
    """The result of a write."""

    status: Literal["OK"]
    message: str
    rows_affected: int
    billing: WriteBilling
    performance: WritePerformance | UnsetType = UNSET
    rows_upserted: int | UnsetType = UNSET
    rows_patched: int | UnsetType = UNSET
    rows_deleted: int | UnsetType = UNSET
    rows_remaining: bool | UnsetType = UNSET
    upserted_ids: list[Id] | UnsetType = UNSET
    patched_ids: list[Id] | UnsetType = UNSET
    deleted_ids: list[Id] | UnsetType = UNSET


class Copy(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which namespace to copy in the background."""

    source_namespace: str | UnsetType = UNSET
    source_api_key: str | UnsetType | None = UNSET
    source_region: str | UnsetType | None = UNSET
    dest_encryption: Any | UnsetType = UNSET
    copy_from_namespace: str | CopySource | UnsetType = UNSET


class Token(msgspec.Struct, kw_only=True):
    """The token of an operation."""

    token: str


class Copied(msgspec.Struct, kw_only=True):
    """How an operation ended."""

    success: WriteAnswer | UnsetType = UNSET
    error: dict[str, Any] | UnsetType = UNSET


class Operation(msgspec.Struct, kw_only=True):
    """The state of an operation."""

    status: Literal["running", "finished"]
    start_time: datetime
    finish_time: datetime | UnsetType = UNSET
    result: Copied | UnsetType = UNSET


class Per(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The number of documents with the same values of some attributes."""

    attributes: Annotated[Names, Meta(min_length=1)]
    limit: Rows


class LimitShape(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The number of documents."""

    total: Rows
    per: Per | UnsetType | None = UNSET


class Consistency(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How stale the state of a query may be."""

    level: Literal["strong", "eventual"]
    max_staleness_seconds: Annotated[int, Meta(ge=0, le=86_400)] | UnsetType = UNSET


class SubQuery(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One query of several."""

    rank_by: list[Any] | UnsetType | None = UNSET
    top_k: Rows | UnsetType | None = UNSET
    limit: Rows | LimitShape | UnsetType | None = UNSET
    offset: Annotated[int, Meta(ge=0, le=10000)] | UnsetType | None = UNSET
    filters: Filter | UnsetType | None = UNSET
    include_attributes: bool | Names | UnsetType | None = UNSET
    exclude_attributes: Names | UnsetType | None = UNSET
    aggregate_by: dict[str, list[str]] | UnsetType | None = UNSET
    group_by: list[Any] | UnsetType | None = UNSET
    distance_metric: MetricName | UnsetType | None = UNSET
    compute_attributes: dict[str, list[Any]] | UnsetType | None = UNSET
    rerank_by: Any | UnsetType = UNSET


class QueryBody(SubQuery, forbid_unknown_fields=True, kw_only=True):
    """A query, or several on one state."""

    consistency: Consistency | UnsetType | None = UNSET
    vector_encoding: Literal["float", "base64"] | UnsetType | None = UNSET
    queries: Annotated[list[SubQuery], Meta(min_length=1)] | UnsetType = UNSET


class ExplainBody(SubQuery, forbid_unknown_fields=True, kw_only=True):
    """A query to explain."""

    consistency: Consistency | UnsetType | None = UNSET
    vector_encoding: Literal["float", "base64"] | UnsetType | None = UNSET


class QueryPerformance(msgspec.Struct, kw_only=True):
    """The performance of a query."""

    snapshot: str
    snapshot_age_ms: int
    cache_hit_ratio: float
    cache_temperature: str
    server_total_ms: int
    query_execution_ms: int
    exhaustive_search_count: int
    approx_namespace_size: int


class QueryBilling(msgspec.Struct, kw_only=True):
    """The cost of a query in bytes."""

    billable_logical_bytes_queried: int
    billable_logical_bytes_returned: int


class Found(msgspec.Struct, kw_only=True):
    """The result of one query."""

    rows: list[Document] | UnsetType = UNSET
    aggregations: dict[str, Any] | UnsetType = UNSET
    aggregation_groups: list[dict[str, Any]] | UnsetType = UNSET


class QueryAnswer(Found, kw_only=True):
    """The result of one or several queries."""

    performance: QueryPerformance
    billing: QueryBilling
    results: list[Found] | UnsetType = UNSET


class Explained(msgspec.Struct, kw_only=True):
    """The explanation of a query."""

    plan_text: str


class RecallBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How to compare index searches with exact ones."""

    num: Annotated[int, Meta(ge=1, le=1000)] | UnsetType | None = UNSET
    top_k: Annotated[int, Meta(ge=1, le=1000)] | UnsetType | None = UNSET
    filters: Filter | UnsetType | None = UNSET
    rank_by: list[Any] | UnsetType | None = UNSET
    include_ground_truth: bool | UnsetType | None = UNSET


class Truth(msgspec.Struct, kw_only=True):
    """The documents nearest to a vector."""

    query_vector: list[float]
    nearest_neighbors: list[Document]


class RecallAnswer(msgspec.Struct, kw_only=True):
    """The recall of index searches."""

    avg_recall: float
    avg_ann_count: float
    avg_exhaustive_count: float
    ground_truth: list[Truth] | UnsetType = UNSET


class WriteParameters(msgspec.Struct, kw_only=True):
    """The parameters of an Arrow write."""

    distance_metric: Literal["cosine_distance", "euclidean_squared"] | UnsetType = UNSET


class ListingParameters(msgspec.Struct, kw_only=True):
    """The page of a listing."""

    prefix: str = ""
    cursor: str = ""
    page_size: Annotated[int, Meta(ge=1, le=1000)] = 100


class Listed(msgspec.Struct, kw_only=True):
    """One namespace in a listing."""

    id: str


class Listing(msgspec.Struct, kw_only=True):
    """A page of namespaces."""

    namespaces: list[Listed]
    next_cursor: str | UnsetType = UNSET


class Status(msgspec.Struct, kw_only=True):
    """Confirmation of success."""

    status: Literal["OK"]


class Warmed(msgspec.Struct, kw_only=True):
    """Confirmation that a namespace is being cached."""

    status: Literal["ACCEPTED"]
    message: str


class IndexShape(msgspec.Struct, kw_only=True):
    """The merge and index progress of a namespace."""

    status: Literal["up-to-date", "updating"]
    unindexed_bytes: int | UnsetType = UNSET
    unindexed_rows: int | UnsetType = UNSET


class ChangedMetadata(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Changes to the metadata of a namespace."""

    read_only: bool | UnsetType | None = UNSET
    pinning: Any | UnsetType = UNSET


class Metadata(msgspec.Struct, kw_only=True):
    """The metadata of a namespace."""

    approx_logical_bytes: int
    approx_row_count: int
    created_at: datetime
    updated_at: datetime
    encryption: dict[str, str]
    index: IndexShape
    schema: Schema
    read_only: bool | UnsetType = UNSET
