"""The routes of the dialect: each parses a request, calls the namespaces, and returns the result."""

from __future__ import annotations

import base64
import binascii
import time
from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from weir.errors import InputError, UnsupportedError
from weir.namespaces import Answer, Namespace, Write, Written, fused
from weir.namespaces.statistics import Statistics, statistics_of
from weir.service.answers import json_answer
from weir.service.context import Call, Service
from weir.service.dispatch import Dispatch
from weir.service.fields import digits, flag, known_only, whole
from weir.service.idempotency import KeyedWrite
from weir.service.limits import MOST_ANSWER_BYTES
from weir.service.openapi import Shape, members
from weir.service.operations import Operations
from weir.service.request import HttpRequest
from weir.service.telemetry import Telemetry
from weir.service.turbopuffer import shapes
from weir.service.turbopuffer.arrow import ARROW, parse_arrow
from weir.service.turbopuffer.filters import parse_filter
from weir.service.turbopuffer.queries import Request, parse_query, parse_ranking, parse_request, shown_answer
from weir.service.turbopuffer.schema import parse_schema, shown_schema
from weir.service.turbopuffer.writes import copied_from, parse_write, shown_written

__all__ = ["turbopuffer_routes"]

_MOST_LISTED = 1000
_SMALL_BYTES = 64 * 1024
"""Largest write that is parsed on the event loop and grouped with others that wait."""


class _Calls:
    """The calls of the dialect."""

    def __init__(self, service: Service, telemetry: Telemetry) -> None:
        self._service = service
        self._telemetry = telemetry
        self._operations = Operations(service)

    def _namespace(self, request: HttpRequest, call: Call, *, writes: bool = False) -> Namespace:
        known = request.namespace
        if known is not None:
            return known
        return self._service.namespace(call, request.path_params["namespace"], writes=writes)

    # ---- documents -------------------------------------------------------------------------------------

    async def write(self, request: HttpRequest, call: Call) -> Response:
        """Write documents, or copy a namespace."""
        namespace, service = self._namespace(request, call, writes=True), self._service
        raw = await service.body(request)
        is_arrow = request.headers.get("content-type", "").startswith(ARROW)
        body = {} if is_arrow else await service.json_body(request)
        source = copied_from(body)
        if source is not None:
            return await self._copy(namespace, source, call)
        key = request.headers.get("idempotency-key")
        # What a key stands for: of Arrow the address has part of the write.
        asked = b"?".join([request.scope["query_string"], raw]) if is_arrow and key is not None else raw

        def parsed() -> Write:
            if is_arrow:
                write = parse_arrow(
                    raw,
                    request.query_params,
                    most_rows=service.options.max_rows,
                    most_bytes=service.options.max_request_bytes,
                )
            else:
                write = parse_write(body, service.options.max_filter_depth)
            service.check_write(write)
            return write

        def done() -> tuple[Write, Written]:
            # In one go: going from thread to thread would take longer.
            write = parsed()
            service.check_backlog(namespace)
            if key is None:
                return write, namespace.write(write)
            return write, service.idempotent.write(namespace, write, call.key.id, key, asked)

        if len(raw) <= _SMALL_BYTES:
            write = parsed()
            one = write if key is None else KeyedWrite(write, call.key.id, key, asked)
            written = await service.write(namespace, one)
        else:
            write, written = await service.run(done)
        if written.created:
            service.audit(call, "namespace.create", namespace.name)
        for kind, rows in (
            ("upsert", written.upserted),
            ("patch", written.patched),
            ("delete", written.deleted),
        ):
            if rows:
                self._telemetry.wrote(kind, rows)
        return json_answer(shown_written(write, written, call.milliseconds))

    async def _copy(self, namespace: Namespace, name: str, call: Call) -> Response:
        source = self._service.namespace(call, name, writes=False)
        rows = await self._service.run(namespace.copy_from, source)
        self._service.audit(call, "namespace.copy", namespace.name)
        return json_answer(_copied(rows))

    async def start_copy(self, request: HttpRequest, call: Call) -> Response:
        """Begin to copy a namespace, and return a token for its progress."""
        namespace = self._namespace(request, call, writes=True)
        body = await self._service.json_body(request)
        name = copied_from(body if "copy_from_namespace" in body else {"copy_from_namespace": body})
        assert name is not None
        source = self._service.namespace(call, name, writes=False)

        def begun() -> str:
            source.opened()
            if namespace.find() is not None:
                raise InputError(
                    f"there is already a namespace {namespace.name!r}, and a copy creates a new one"
                )
            return self._operations.begin(namespace.name, lambda: _copied(namespace.copy_from(source)))

        token = await self._service.run(begun)
        self._service.audit(call, "namespace.copy", namespace.name)
        return json_answer({"token": token})

    async def operation(self, request: HttpRequest, call: Call) -> Response:
        """Return the state of an operation."""
        namespace = self._namespace(request, call)
        token = request.path_params["token"]
        return json_answer(await self._service.run(self._operations.read, namespace.name, token))

    async def query(self, request: HttpRequest, call: Call) -> Response:
        """Answer one query or several."""
        namespace = self._namespace(request, call)
        body = await self._service.json_body(request)
        options = self._service.options
        content = await self._service.read(self._answered, namespace, body, options, call)
        return json_answer(content)

    def _answered(
        self, namespace: Namespace, body: dict[str, Any], options: Any, call: Call
    ) -> dict[str, Any]:
        asked = parse_request(body, depth=options.max_filter_depth, most_queries=options.max_queries)
        answers = namespace.queries(asked.queries, asked.state, MOST_ANSWER_BYTES)
        shown = _shown(asked, answers)
        rows = sum(len(one.get("rows", ())) for one in shown)
        self._telemetry.rows_returned.inc(rows)
        statistics = statistics_of(namespace)
        whole_ = {
            "performance": _performance(statistics, answers[0], call),
            "billing": {
                "billable_logical_bytes_queried": statistics.bytes,
                "billable_logical_bytes_returned": sum(
                    0 if one.rows is None else one.rows.nbytes for one in answers
                ),
            },
        }
        return {**({"results": shown} if asked.is_multi else shown[0]), **whole_}

    async def explain(self, request: HttpRequest, call: Call) -> Response:
        """Explain a query."""
        namespace = self._namespace(request, call)
        body = await self._service.json_body(request)
        body.pop("consistency", None)
        body.pop("vector_encoding", None)
        query = parse_query(body, self._service.options.max_filter_depth)
        return json_answer({"plan_text": await self._service.read(namespace.explain, query)})

    async def recall(self, request: HttpRequest, call: Call) -> Response:
        """Compare index searches with exact ones."""
        namespace = self._namespace(request, call)
        body = await self._service.json_body(request)
        known_only(body, members(shapes.RecallBody), "recall")
        depth = self._service.options.max_filter_depth
        ranking = None if body.get("rank_by") is None else parse_ranking(body["rank_by"])
        measured = await self._service.read(
            lambda: namespace.recall(
                searches=whole(body, "num", 1, 1000, 25),
                top_k=whole(body, "top_k", 1, 1000, 10),
                filter=None if body.get("filters") is None else parse_filter(body["filters"], depth),
                ranking=ranking,
            )
        )
        shown: dict[str, Any] = {
            "avg_recall": measured.recall,
            "avg_ann_count": measured.found,
            "avg_exhaustive_count": measured.exact,
        }
        if flag(body, "include_ground_truth"):
            shown["ground_truth"] = [
                {
                    "query_vector": vector.tolist(),
                    "nearest_neighbors": shown_answer(Answer(rows=rows), base64=False)["rows"],
                }
                for vector, rows in measured.truth
            ]
        return json_answer(shown)

    # ---- namespaces ------------------------------------------------------------------------------------

    async def list(self, request: HttpRequest, call: Call) -> Response:
        """List the namespaces that the key may use."""
        given = request.query_params
        size = given.get("page_size", "100")
        most = digits(size)
        if most is None or not 1 <= most <= _MOST_LISTED:
            raise InputError(f"page_size is a whole number from 1 to {_MOST_LISTED}")
        after = _name_of(given.get("cursor", ""))
        names = await self._service.run(self._service.namespaces.names, given.get("prefix", ""), after)
        seen = [name for name in names if call.key.may_see(name)]
        page = seen[:most]
        shown: dict[str, Any] = {"namespaces": [{"id": name} for name in page]}
        if len(seen) > len(page):
            shown["next_cursor"] = base64.urlsafe_b64encode(page[-1].encode()).decode()
        return json_answer(shown)

    async def delete(self, request: HttpRequest, call: Call) -> Response:
        """Remove a namespace."""
        namespace = self._namespace(request, call, writes=True)
        await self._service.run(namespace.delete)
        self._service.audit(call, "namespace.delete", namespace.name)
        return json_answer({"status": "OK"})

    async def schema(self, request: HttpRequest, call: Call) -> Response:
        """Show the attributes of a namespace."""
        namespace = self._namespace(request, call)
        definition = await self._service.run(lambda: namespace.definition)
        return json_answer(shown_schema(definition))

    async def change_schema(self, request: HttpRequest, call: Call) -> Response:
        """Declare attributes of a namespace."""
        namespace = self._namespace(request, call, writes=True)
        declarations = parse_schema(await self._service.json_body(request))
        definition = await self._service.run(namespace.declare, declarations)
        self._service.audit(call, "namespace.schema", namespace.name)
        return json_answer(shown_schema(definition))

    async def metadata(self, request: HttpRequest, call: Call) -> Response:
        """Show the metadata of a namespace."""
        namespace = self._namespace(request, call)
        return json_answer(await self._service.run(_metadata, namespace))

    async def change_metadata(self, request: HttpRequest, call: Call) -> Response:
        """Make a namespace read-only, or writable again."""
        namespace = self._namespace(request, call, writes=True)
        body = await self._service.json_body(request)
        known_only(body, members(shapes.ChangedMetadata), "metadata")
        if body.get("pinning"):
            raise UnsupportedError("pinning is not offered")
        if body.get("read_only") is not None:
            await self._service.run(namespace.set_read_only, flag(body, "read_only"))
            self._service.audit(call, "namespace.read_only", namespace.name, str(body["read_only"]))
        return json_answer(await self._service.run(_metadata, namespace))

    async def warm(self, request: HttpRequest, call: Call) -> Response:
        """Warm the cache for the next query."""
        namespace = self._namespace(request, call)
        await self._service.run(namespace.opened)
        self._service.later(namespace.warm)
        return json_answer({"status": "ACCEPTED", "message": "the namespace is being read"})


def _shown(asked: Request, answers: list[Answer]) -> list[dict[str, Any]]:
    if asked.fusion is None:
        return [shown_answer(one, base64=asked.base64) for one in answers]
    fusion = asked.fusion
    rows = fused(
        [one.rows for one in answers if one.rows is not None],
        fusion.weights,
        limit=fusion.limit,
        offset=fusion.offset,
        constant=fusion.constant,
    )
    return [shown_answer(Answer(rows=rows), base64=asked.base64)]


def _copied(rows: int) -> dict[str, Any]:
    return {
        "status": "OK",
        "message": "copied",
        "rows_affected": rows,
        "rows_upserted": rows,
        "billing": {"billable_logical_bytes_written": 0},
    }


def _performance(statistics: Statistics, answer: Answer, call: Call) -> dict[str, Any]:
    return {
        "snapshot": answer.token,
        "snapshot_age_ms": int((time.monotonic() - answer.taken) * 1000),
        "cache_hit_ratio": 1.0,
        "cache_temperature": "hot",
        "server_total_ms": call.milliseconds,
        "query_execution_ms": call.milliseconds,
        "exhaustive_search_count": statistics.unindexed_rows,
        "approx_namespace_size": statistics.rows,
    }


def _metadata(namespace: Namespace) -> dict[str, Any]:
    definition = namespace.definition
    statistics = statistics_of(namespace, fresh=True)
    index: dict[str, Any] = {"status": "up-to-date"}
    rows = statistics.rows
    if statistics.waiting_rows:
        # What waits may replace or delete what is there, or itself.
        rows = namespace.count()
        index = {
            "status": "updating",
            "unindexed_bytes": statistics.waiting_bytes,
            "unindexed_rows": statistics.waiting_rows,
        }
    shown = {
        "approx_logical_bytes": statistics.bytes,
        "approx_row_count": rows,
        "created_at": definition.created_at.isoformat().replace("+00:00", "Z"),
        "updated_at": statistics.updated_at.isoformat().replace("+00:00", "Z"),
        "encryption": {"mode": "default"},
        "index": index,
        "schema": shown_schema(definition),
    }
    return {**shown, "read_only": True} if definition.read_only else shown


def _name_of(cursor: str) -> str:
    try:
        return base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise InputError("the cursor is not valid for a listing") from error


def turbopuffer_routes(service: Service, dispatch: Dispatch, telemetry: Telemetry) -> list[Route]:
    """Return the routes of the dialect."""
    calls = _Calls(service, telemetry)
    one = "/namespaces/{namespace}"
    # A path is compared with one route after the other: what is asked most goes first.
    return [
        dispatch.route(
            f"/v2{one}",
            "POST",
            calls.write,
            Shape(
                parameters=shapes.WriteParameters,
                body=shapes.WriteBody,
                body_media=(ARROW,),
                answer=shapes.WriteAnswer,
                is_optional=True,
            ),
            owner=True,
        ),
        dispatch.route(
            f"/v2{one}/query", "POST", calls.query, Shape(body=shapes.QueryBody, answer=shapes.QueryAnswer)
        ),
        dispatch.route(
            "/v1/namespaces",
            "GET",
            calls.list,
            Shape(parameters=shapes.ListingParameters, answer=shapes.Listing),
        ),
        dispatch.route(f"/v2{one}", "DELETE", calls.delete, Shape(answer=shapes.Status), owner=True),
        dispatch.route(
            f"/v2{one}/async",
            "POST",
            calls.start_copy,
            Shape(body=shapes.Copy, answer=shapes.Token),
            owner=True,
        ),
        dispatch.route(
            f"/v1{one}/operations/{{token}}", "GET", calls.operation, Shape(answer=shapes.Operation)
        ),
        dispatch.route(
            f"/v2{one}/explain_query",
            "POST",
            calls.explain,
            Shape(body=shapes.ExplainBody, answer=shapes.Explained),
        ),
        dispatch.route(f"/v1{one}/schema", "GET", calls.schema, Shape(answer=shapes.Schema)),
        dispatch.route(
            f"/v1{one}/schema",
            "POST",
            calls.change_schema,
            Shape(body=shapes.Schema, answer=shapes.Schema, is_optional=True),
            owner=True,
        ),
        dispatch.route(f"/v1{one}/metadata", "GET", calls.metadata, Shape(answer=shapes.Metadata)),
        dispatch.route(f"/v2{one}/metadata", "GET", calls.metadata, Shape(answer=shapes.Metadata)),
        dispatch.route(
            f"/v1{one}/metadata",
            "PATCH",
            calls.change_metadata,
            Shape(body=shapes.ChangedMetadata, answer=shapes.Metadata, is_optional=True),
            owner=True,
        ),
        dispatch.route(f"/v1{one}/hint_cache_warm", "GET", calls.warm, Shape(answer=shapes.Warmed)),
        dispatch.route(
            f"/v1{one}/_debug/recall",
            "POST",
            calls.recall,
            Shape(body=shapes.RecallBody, answer=shapes.RecallAnswer, is_optional=True),
        ),
    ]
