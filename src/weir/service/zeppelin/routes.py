"""The routes of the dialect: each parses a request, calls the namespaces, and returns the result."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any
from uuid import uuid4

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from weir.errors import InputError, NamespaceNotFoundError, WeirError
from weir.namespaces import Namespace, Write, Written
from weir.namespaces.names import directory_of
from weir.namespaces.state_report import lease_report, manifest_report
from weir.service.answers import json_answer
from weir.service.body import decoded
from weir.service.context import Call, Service
from weir.service.dispatch import Dispatch
from weir.service.fields import chosen, flag, given, known_only, mapping, names, sequence
from weir.service.openapi import Shape, members
from weir.service.refusals import Refusal, refusal_of
from weir.service.request import HttpRequest
from weir.service.telemetry import Telemetry
from weir.service.zeppelin import shapes
from weir.service.zeppelin.cursors import Cursors
from weir.service.zeppelin.envelope import envelope
from weir.service.zeppelin.filters import parse_filter
from weir.service.zeppelin.namespaces import (
    definition_of,
    is_same,
    moment,
    shown_compaction,
    shown_namespace,
    with_index_config,
)
from weir.service.zeppelin.queries import answer_query, parse_query
from weir.service.zeppelin.query_defaults import QueryDefaults
from weir.service.zeppelin.security import security_routes
from weir.service.zeppelin.snapshots import Snapshots, checked_name
from weir.service.zeppelin.vectors import (
    check_dimensions,
    dimensions_of,
    parse_ids,
    parse_vectors,
    shown_vectors,
    unpacked,
)

__all__ = ["zeppelin_routes"]

_MSGPACK = "application/msgpack"
_SECONDS_DELETING = 5.0
_GENERATED = "The name was made up: keep it, there is no other way to reach the namespace."
_IDEMPOTENT = "Client-specified namespace names are idempotent for identical configuration."


class _Calls:
    """The calls of the dialect."""

    def __init__(self, service: Service, telemetry: Telemetry) -> None:
        self._service = service
        self._telemetry = telemetry
        self._store = service.namespaces.store
        self._cursors = Cursors(self._store)
        self._defaults = QueryDefaults(self._store)
        self._snapshots = Snapshots(self._store)

    def _namespace(self, request: HttpRequest, call: Call, *, writes: bool = False) -> Namespace:
        return self._service.namespace(call, request.path_params["namespace"], writes=writes)

    async def _run(self, namespace: Namespace, work: Any, *arguments: Any, reads: bool = False) -> Any:
        """Run something on an existing namespace; a read ends if its request is abandoned."""
        run = self._service.read if reads else self._service.run
        try:
            return await run(work, *arguments)
        except NamespaceNotFoundError as error:
            if await self._service.run(self._is_deleting, namespace.name):
                raise Refusal(
                    410, "NAMESPACE_DELETING", f"namespace is being deleted: {namespace.name}"
                ) from error
            raise Refusal(404, "NAMESPACE_NOT_FOUND", f"namespace not found: {namespace.name}") from error

    def _is_deleting(self, name: str) -> bool:
        meta = self._store.head(_deleting(name))
        return meta is not None and time.time() - meta.last_modified.timestamp() < _SECONDS_DELETING

    # ---- namespaces ------------------------------------------------------------------------------------

    async def create(self, request: HttpRequest, call: Call) -> Response:
        """Create a namespace, or confirm that the same one exists."""
        body = await self._service.json_body(request)
        name = body.get("name")
        if name is not None and not isinstance(name, str):
            raise InputError("name is a text")
        namespace = self._service.namespace(call, str(uuid4()) if name is None else name, writes=True)
        definition = definition_of(body)

        def made() -> tuple[bool, dict[str, Any]]:
            there = namespace.find()
            if there is None:
                there = namespace.create(definition)
            created = there.definition.table == definition.table
            if not created and not is_same(there.definition, definition):
                raise Refusal(409, "NAMESPACE_ALREADY_EXISTS", f"namespace already exists: {namespace.name}")
            return created, shown_namespace(namespace)

        created, shown = await self._service.run(made)
        if created:
            self._service.audit(call, "namespace.create", namespace.name)
        warning = _GENERATED if name is None else _IDEMPOTENT
        return json_answer({**shown, "warning": warning}, 201 if created else 200)

    async def show(self, request: HttpRequest, call: Call) -> Response:
        """Show a namespace."""
        namespace = self._namespace(request, call)
        return json_answer(await self._run(namespace, shown_namespace, namespace))

    async def delete(self, request: HttpRequest, call: Call) -> Response:
        """Remove a namespace."""
        namespace = self._namespace(request, call, writes=True)

        def deleted() -> None:
            namespace.opened()
            self._store.put(_deleting(namespace.name), uuid4().hex.encode())
            namespace.delete()

        try:
            await self._run(namespace, deleted)
        except Refusal as refusal:
            if refusal.code != "NAMESPACE_DELETING":
                raise
            # Asked for once more: it is under way.
            return json_answer({"state": "deleting"}, 202)
        self._service.audit(call, "namespace.delete", namespace.name)
        return json_answer({"state": "deleting"}, 202)

    async def compaction(self, request: HttpRequest, call: Call) -> Response:
        """Show the merge progress of a namespace."""
        namespace = self._namespace(request, call)
        return json_answer(await self._run(namespace, shown_compaction, namespace))

    async def compact(self, request: HttpRequest, call: Call) -> Response:
        """Merge and index pending rows in the background."""
        namespace = self._namespace(request, call, writes=True)
        shown = await self._run(namespace, shown_compaction, namespace)
        if not shown["uncompacted_fragments"]:
            return json_answer({**shown, "status": "noop"})
        self._service.later(namespace.compact)
        return json_answer({**shown, "status": "accepted"}, 202)

    async def hydrate(self, request: HttpRequest, call: Call) -> Response:
        """Warm the cache for the next query, in the background."""
        namespace = self._namespace(request, call)
        shown = await self._run(namespace, shown_compaction, namespace)
        if shown["active_segment"] is None:
            raise InputError("the namespace has no segment yet")
        self._service.later(namespace.warm)
        return json_answer({"namespace": namespace.name, "segment_id": shown["active_segment"]}, 202)

    async def index_config(self, request: HttpRequest, call: Call) -> Response:
        """Change the vector index from the next compaction on."""
        namespace = self._namespace(request, call, writes=True)
        body = await self._service.json_body(request)

        def changed() -> Any:
            dimensions_of(namespace)
            definition = namespace.redefine(lambda known: with_index_config(known, body))
            namespace.opened().mark_dirty()
            return definition

        definition = await self._run(namespace, changed)
        self._service.audit(call, "namespace.index_config", namespace.name)
        return json_answer(
            {
                "namespace": namespace.name,
                "index_config": definition.dialect["index_config"],
                "status": "accepted",
                "observe": "applies asynchronously on the next compaction; observe "
                f"GET /v1/namespaces/{namespace.name}",
            },
            202,
        )

    async def manifest(self, request: HttpRequest, call: Call) -> Response:
        """Show the structure of a namespace."""
        namespace = self._namespace(request, call)

        def shown() -> dict[str, Any]:
            opened = namespace.opened()
            report = manifest_report(opened.table, opened.definition)
            return {
                "fragments": [
                    {**asdict(one), "created_at": moment(one.created_at)} for one in report.fragments
                ],
                "segments": [
                    {**asdict(one), "created_at": moment(opened.definition.created_at)}
                    for one in report.segments
                ],
                "pending_deletes": report.pending_deletes,
                "fencing_token": report.fencing_token,
                "updated_at": moment(opened.updated_at()),
            }

        return json_answer(await self._run(namespace, shown))

    async def lease(self, request: HttpRequest, call: Call) -> Response:
        """Show who writes a namespace."""
        namespace = self._namespace(request, call)
        report = await self._run(namespace, lambda: lease_report(namespace.opened().table))
        if report is None:
            raise Refusal(404, "NOT_FOUND", "the namespace has not been written yet")
        return json_answer(
            {
                "holder": report.holder,
                "fencing_token": report.fencing_token,
                "acquired_at": moment(report.acquired_at),
                "expires_at": moment(report.expires_at),
            }
        )

    # ---- vectors ---------------------------------------------------------------------------------------

    async def upsert(self, request: HttpRequest, call: Call) -> Response:
        """Write vectors."""
        namespace = self._namespace(request, call, writes=True)
        packed = request.headers.get("content-type", "").startswith(_MSGPACK)
        raw = await self._service.body(request)
        documents = parse_vectors(unpacked(raw) if packed else decoded(raw))
        write = Write(upserts=documents, create=False)
        self._service.check_write(write)

        def written() -> int:
            check_dimensions(documents, dimensions_of(namespace))
            return self._written(namespace, write, request, call, raw).upserted

        await self._run(namespace, self._service.check_backlog, namespace)
        rows = await self._run(namespace, written)
        self._telemetry.wrote("upsert", rows)
        return json_answer({"upserted": len(documents)})

    def _written(
        self, namespace: Namespace, write: Write, request: HttpRequest, call: Call, raw: bytes, part: int = 0
    ) -> Written:
        key = request.headers.get("idempotency-key")
        if key is None:
            return namespace.write(write)
        # Each part of a write is done once.
        caller = f"{call.key.id} part {part}" if part else call.key.id
        return self._service.idempotent.write(namespace, write, caller, key, raw)

    async def remove(self, request: HttpRequest, call: Call) -> Response:
        """Delete vectors."""
        namespace = self._namespace(request, call, writes=True)
        body = await self._service.json_body(request)
        known_only(body, members(shapes.Deletion), "a deletion")
        if (body.get("ids") is None) == (body.get("filter") is None):
            raise InputError("a deletion has ids or a filter")
        if body.get("ids") is not None:
            write = Write(deletes=parse_ids(body), create=False)
        else:
            where = parse_filter(body["filter"], self._service.options.max_filter_depth)
            write = Write(delete_where=where, delete_partial=True, create=False)
        self._service.check_write(write)
        raw = await self._service.body(request)

        await self._run(namespace, self._service.check_backlog, namespace)

        def deleted() -> int:
            written = self._written(namespace, write, request, call, raw)
            total, parts = written.deleted, 1
            while written.remaining:
                written = self._written(namespace, write, request, call, raw, parts)
                total, parts = total + written.deleted, parts + 1
            return total

        rows = await self._run(namespace, deleted)
        self._telemetry.wrote("delete", rows)
        return Response(status_code=204)

    async def fetch(self, request: HttpRequest, call: Call) -> Response:
        """Return vectors by their ids."""
        namespace = self._namespace(request, call)
        body = await self._service.json_body(request)
        known_only(body, members(shapes.Fetch), "a fetch")
        ids = parse_ids(body)
        if len({*ids}) < len(ids):
            raise InputError("ids are all different")
        with_vector = flag(body, "include_vector", True)
        with_attributes = flag(body, "include_attributes", True)
        fields = body.get("attribute_fields")
        wanted = None if fields is None else names(fields, "attribute_fields")
        if wanted is not None and (not wanted or not with_attributes):
            raise InputError("attribute_fields names at least one field, and goes with include_attributes")
        chosen(given(body, "consistency", "strong"), ("strong", "eventual"), "consistency")
        attributes = wanted if with_attributes else ()
        shown = await self._run(namespace, shown_vectors, namespace, ids, with_vector, attributes, reads=True)
        return json_answer(shown)

    # ---- queries ---------------------------------------------------------------------------------------

    async def query(self, request: HttpRequest, call: Call) -> Response:
        """Answer a query."""
        namespace = self._namespace(request, call)
        body = await self._service.json_body(request)
        return json_answer(await self._run(namespace, self._answered, namespace, body, call, reads=True))

    def _answered(self, namespace: Namespace, body: Mapping[str, Any], call: Call) -> dict[str, Any]:
        dimensions_of(namespace)
        defaults = self._defaults.values()
        asked = parse_query(
            body,
            depth=self._service.options.max_filter_depth,
            default_top_k=defaults["default_top_k"],
            default_nprobe=defaults["default_nprobe"],
        )
        answer = answer_query(namespace, asked, self._cursors, call.key.id)
        self._telemetry.rows_returned.inc(len(answer["results"]))
        return answer

    async def batch(self, request: HttpRequest, call: Call) -> Response:
        """Answer several queries, each by itself."""
        namespace = self._namespace(request, call)
        body = await self._service.json_body(request)
        known_only(body, members(shapes.BatchBody), "a batch")
        queries = sequence(body.get("queries"), "queries")
        most = self._service.options.max_queries
        if len(queries) > most:
            raise Refusal(
                413, "PAYLOAD_TOO_LARGE", f"query batch size {len(queries)} exceeds maximum of {most}"
            )
        if not queries:
            raise InputError("queries has at least one")
        await self._run(namespace, namespace.opened)
        results = [await self._one_of_batch(namespace, one, call) for one in queries]
        return json_answer({"results": results})

    async def _one_of_batch(self, namespace: Namespace, body: object, call: Call) -> dict[str, Any]:
        began = time.monotonic()
        try:
            asked = mapping(body, "each of queries")
            answer = await self._run(namespace, self._answered, namespace, asked, call, reads=True)
            shown = {"ok": True, "response": answer}
        except (WeirError, Refusal) as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            told = msgspec.structs.asdict(envelope(refusal, call.request_id))
            told.pop("request_id")
            shown = {"ok": False, "error": told}
        return {**shown, "metadata": {"latency_ms": int((time.monotonic() - began) * 1000)}}

    # ---- snapshots and clones --------------------------------------------------------------------------

    async def save_snapshot(self, request: HttpRequest, call: Call) -> Response:
        """Save the current state under a name."""
        namespace = self._namespace(request, call, writes=True)
        name = checked_name(request.path_params["name"])

        shown = _shown_snapshot(await self._run(namespace, self._snapshots.save, namespace, name))
        self._service.audit(call, "snapshot.create", f"{namespace.name}/{name}")
        return json_answer(shown, 201)

    async def snapshot(self, request: HttpRequest, call: Call) -> Response:
        """Show a saved state."""
        namespace = self._namespace(request, call)
        name = checked_name(request.path_params["name"])
        return json_answer(_shown_snapshot(await self._run(namespace, self._snapshots.get, namespace, name)))

    async def snapshots(self, request: HttpRequest, call: Call) -> Response:
        """List the saved states."""
        namespace = self._namespace(request, call)
        found = await self._run(namespace, self._snapshots.of, namespace)
        return json_answer({"snapshots": [_shown_snapshot(one) for one in found]})

    async def delete_snapshot(self, request: HttpRequest, call: Call) -> Response:
        """Delete a saved state."""
        namespace = self._namespace(request, call, writes=True)
        name = checked_name(request.path_params["name"])
        await self._run(namespace, self._snapshots.delete, namespace, name)
        self._service.audit(call, "snapshot.delete", f"{namespace.name}/{name}")
        return Response(status_code=204)

    async def clone(self, request: HttpRequest, call: Call) -> Response:
        """Copy a state of a namespace to a new one."""
        namespace = self._namespace(request, call)
        body = await self._service.json_body(request)
        known_only(body, members(shapes.Clone), "a clone")
        target, as_of = body.get("target"), body.get("as_of")
        if not isinstance(target, str) or not isinstance(as_of, str):
            raise InputError("a clone has a target and as_of")
        copy = self._service.namespace(call, target, writes=True)

        def cloned() -> dict[str, Any]:
            if copy.find() is not None:
                raise Refusal(409, "NAMESPACE_ALREADY_EXISTS", f"namespace already exists: {target}")
            with self._snapshots.state(namespace, as_of) as (generation, token):
                copy.copy_from(namespace, token)
            return {
                "source": namespace.name,
                "target": target,
                "generation": generation,
                "target_generation": shown_compaction(copy)["manifest_generation"],
                "mode": "copy",
                "namespace": shown_namespace(copy),
            }

        shown = await self._run(namespace, cloned)
        self._service.audit(call, "namespace.clone", target)
        return json_answer(shown, 201)

    # ---- query defaults --------------------------------------------------------------------------------

    async def config(self, request: HttpRequest, call: Call) -> Response:
        """Show the query defaults."""
        self._service.admin(call)
        return json_answer(await self._service.run(self._defaults.values))

    async def change_config(self, request: HttpRequest, call: Call) -> Response:
        """Change the query defaults."""
        self._service.admin_of(call, ())
        body = await self._service.json_body(request)
        defaults = await self._service.run(self._defaults.change, body)
        self._service.audit(call, "config.query", "queries")
        return json_answer(defaults)


def _deleting(name: str) -> str:
    return f"deleting/{directory_of(name)}"


def _shown_snapshot(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {name: stored[name] for name in ("name", "generation", "created_at")}


def zeppelin_routes(service: Service, dispatch: Dispatch, telemetry: Telemetry) -> list[Route]:
    """Return the routes of the dialect."""
    calls = _Calls(service, telemetry)
    one = "/v1/namespaces/{namespace}"
    return [
        dispatch.route(
            "/v1/namespaces",
            "POST",
            calls.create,
            Shape(body=shapes.Create, answer=shapes.Created, statuses=(200, 201)),
        ),
        dispatch.route(
            f"{one}/query", "POST", calls.query, Shape(body=shapes.QueryBody, answer=shapes.QueryAnswer)
        ),
        dispatch.route(
            f"{one}/query/batch", "POST", calls.batch, Shape(body=shapes.BatchBody, answer=shapes.BatchAnswer)
        ),
        dispatch.route(
            f"{one}/vectors",
            "POST",
            calls.upsert,
            Shape(body=shapes.Upsert, body_media=(_MSGPACK,), answer=shapes.Upserted),
            owner=True,
        ),
        dispatch.route(
            f"{one}/vectors", "DELETE", calls.remove, Shape(body=shapes.Deletion, statuses=(204,)), owner=True
        ),
        dispatch.route(
            f"{one}/vectors/get", "POST", calls.fetch, Shape(body=shapes.Fetch, answer=shapes.Fetched)
        ),
        dispatch.route(
            f"{one}/compact",
            "POST",
            calls.compact,
            Shape(answer=shapes.Compacting, statuses=(200, 202)),
            owner=True,
        ),
        dispatch.route(f"{one}/compact/status", "GET", calls.compaction, Shape(answer=shapes.Compaction)),
        dispatch.route(
            f"{one}/hydrate", "POST", calls.hydrate, Shape(answer=shapes.Hydrating, statuses=(202,))
        ),
        dispatch.route(
            f"{one}/index_config",
            "PATCH",
            calls.index_config,
            Shape(body=shapes.IndexConfig, answer=shapes.IndexConfigured, statuses=(202,)),
            owner=True,
        ),
        dispatch.route(f"{one}/manifest", "GET", calls.manifest, Shape(answer=shapes.ManifestShape)),
        dispatch.route(f"{one}/lease", "GET", calls.lease, Shape(answer=shapes.LeaseShape)),
        dispatch.route(f"{one}/snapshots", "GET", calls.snapshots, Shape(answer=shapes.Snapshots)),
        dispatch.route(
            f"{one}/snapshots/{{name}}",
            "PUT",
            calls.save_snapshot,
            Shape(answer=shapes.Snapshot, statuses=(201,)),
        ),
        dispatch.route(f"{one}/snapshots/{{name}}", "GET", calls.snapshot, Shape(answer=shapes.Snapshot)),
        dispatch.route(f"{one}/snapshots/{{name}}", "DELETE", calls.delete_snapshot, Shape(statuses=(204,))),
        dispatch.route(
            f"{one}/clone",
            "POST",
            calls.clone,
            Shape(body=shapes.Clone, answer=shapes.Cloned, statuses=(201,)),
        ),
        dispatch.route(one, "GET", calls.show, Shape(answer=shapes.NamespaceShape)),
        dispatch.route(one, "DELETE", calls.delete, Shape(answer=shapes.State, statuses=(202,)), owner=True),
        dispatch.route("/v1/config/query", "GET", calls.config, Shape(answer=shapes.Config)),
        dispatch.route(
            "/v1/config/query",
            "PATCH",
            calls.change_config,
            Shape(body=shapes.Config, answer=shapes.Config, is_optional=True),
        ),
        dispatch.route(
            "/v1/config/query",
            "PUT",
            calls.change_config,
            Shape(body=shapes.Config, answer=shapes.Config, is_optional=True),
        ),
        *security_routes(service, dispatch),
    ]
