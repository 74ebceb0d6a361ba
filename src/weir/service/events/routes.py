"""The routes of event stores: commands of the language, batches, tables of events, and subscriptions."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

import weir.events
from weir.engine.cancellation import check_cancelled
from weir.errors import ConflictError, InputError, QueryError, TableError
from weir.events.cursors import Cursor
from weir.events.language import tree
from weir.events.language.parser import parse
from weir.events.subscriptions import Subscription
from weir.namespaces.names import check_namespace_name
from weir.service.answers import json_answer
from weir.service.arrow_stream import read_stream
from weir.service.body import decoded
from weir.service.context import Call, Service
from weir.service.dispatch import Dispatch
from weir.service.events import shapes
from weir.service.events.idempotency import IdempotentBatches
from weir.service.events.stores import EventStores
from weir.service.fields import digits, known_only, mapping, sequence, whole
from weir.service.limits import MOST_ANSWER_BYTES
from weir.service.openapi import Shape, members
from weir.service.refusals import Refusal
from weir.service.request import HttpRequest
from weir.service.telemetry import Telemetry

__all__ = ["event_routes"]

_ARROW = "application/vnd.apache.arrow.stream"
_ONLY_READS = (tree.Query, tree.Plot, tree.Replay, tree.Explain, tree.Compare)
# SHOW remembers what it has read.
_READS = (*_ONLY_READS, tree.Show, tree.ShowTypes, tree.ShowMaterializations, tree.Ping)
_SECONDS_BETWEEN = (0.1, 1.0)
"""Waits between checks for events, increasing while there are none."""
_SECONDS_SILENT = 15.0
_BATCH_ROWS = 1_000
_MOST_COMMAND_BYTES = 1024 * 1024
"""Parsing a command takes seconds per megabyte."""

_Result = TypeVar("_Result")


class _Calls:
    def __init__(self, service: Service, telemetry: Telemetry, stores: EventStores) -> None:
        self._service = service
        self._telemetry = telemetry
        self._stores = stores
        self._once = IdempotentBatches(service.namespaces.store)
        self._streams: Counter[str] = Counter()

    def _name(self, request: HttpRequest, call: Call, *, writes: bool) -> str:
        name = check_namespace_name(request.path_params["store"])
        self._service.check_access(call, name, writes=writes)
        return name

    async def _run(self, work: Callable[..., _Result], *arguments: Any, reads: bool = False) -> _Result:
        """Run a call of a store; a read ends if its request is abandoned.

        Its refusals become client errors.
        """
        run = self._service.read if reads else self._service.run
        try:
            return await run(work, *arguments)
        except ConflictError as error:
            raise Refusal(409, "conflict", error.message) from error
        except QueryError as error:
            place = f"{error.where}: " if error.where and error.where.startswith("line ") else ""
            hint = f". {error.hint}" if error.hint else ""
            raise Refusal(400, "invalid_request", f"{place}{error.message}{hint}") from error
        except TableError as error:
            raise Refusal(404, "not_found", error.message) from error

    async def list(self, request: HttpRequest, call: Call) -> Response:
        """List the event stores that the key may use."""
        names = await self._service.run(self._stores.names)
        return json_answer({"stores": [{"id": name} for name in names if call.key.may_see(name)]})

    async def create(self, request: HttpRequest, call: Call) -> Response:
        """Create an event store, unless it exists."""
        name = self._name(request, call, writes=True)
        await self._run(lambda: self._stores.get(name, create=True))
        self._service.audit(call, "event_store.create", name)
        return json_answer({"id": name})

    async def execute(self, request: HttpRequest, call: Call) -> Response:
        """Run a command of the language."""
        name = self._name(request, call, writes=False)
        raw = await self._service.body(request)
        text = _command(raw, request.headers.get("content-type", ""))
        command = await self._run(parse, text)
        if not isinstance(command, _READS):
            self._service.check_access(call, name, writes=True)
        appends = isinstance(command, tree.Store | tree.Batch)
        key = request.headers.get("idempotency-key") if appends else None
        is_arrow = _ARROW in request.headers.get("accept", "")

        def ran() -> Response:
            store = self._stores.get(name, create=isinstance(command, tree.Define))
            if key is not None:

                def append(once: str) -> list[int]:
                    appended: weir.events.Appended = store.execute(text, once=once)
                    return list(appended.ids)

                return json_answer(_repeated(self._once.append(name, call.key.id, key, raw, append)))
            result = store.execute(text)
            if not isinstance(result, weir.events.Result):
                return json_answer(_told(result))
            table = result.to_table()
            if table.nbytes > MOST_ANSWER_BYTES:
                raise InputError(
                    f"the answer has more than {MOST_ANSWER_BYTES:,} bytes",
                    hint="Ask for fewer rows with LIMIT, or for fewer fields with RETURN",
                )
            self._telemetry.rows_returned.inc(table.num_rows)
            if is_arrow:
                return Response(_as_arrow(table), media_type=_ARROW)
            return json_answer(
                {"columns": table.schema.names, "rows": _rows(table), "warnings": list(result.warnings)}
            )

        response = await self._run(ran, reads=isinstance(command, _ONLY_READS))
        if isinstance(command, tree.Forget | tree.Retain):
            self._service.audit(call, f"events.{type(command).__name__.lower()}", name)
        return response

    async def batch(self, request: HttpRequest, call: Call) -> Response:
        """Append events of one context, all or none."""
        name = self._name(request, call, writes=True)
        raw = await self._service.body(request)
        body = decoded(raw)
        known_only(body, members(shapes.Batch), "a batch")
        context, expected = body.get("context"), body.get("expected")
        if not isinstance(context, str):
            raise InputError("context names whose events they are")
        if expected is not None:
            expected = whole(body, "expected", 0, 2**63 - 1, 0)
        events = [_event(one, at) for at, one in enumerate(sequence(body.get("events"), "events"))]
        if len(events) > self._service.options.max_rows:
            raise Refusal(413, "too_many_documents", "a batch has fewer events")
        key = request.headers.get("idempotency-key")

        def appended() -> dict[str, Any]:
            writer = self._stores.writer(name)
            if key is None:
                return _told(writer.append_all(context, events, expected=expected))

            def append(once: str) -> list[int]:
                return writer.append_all(context, events, expected=expected, once=once).ids

            return _repeated(self._once.append(name, call.key.id, key, raw, append))

        shown = await self._run(appended)
        self._telemetry.wrote("event", len(events))
        return json_answer(shown)

    async def ingest(self, request: HttpRequest, call: Call) -> Response:
        """Append a table of events of one type, given as an Arrow stream."""
        name = self._name(request, call, writes=True)
        kind = request.query_params.get("type", "")
        raw = await self._service.body(request)
        source, most_bytes = _source(request), self._service.options.max_request_bytes
        if source is None and "idempotency-key" in request.headers:
            raise InputError("a table of events takes source and number, and no Idempotency-Key")

        def ingested() -> int:
            table = read_stream(raw, most_rows=most_bytes, most_bytes=most_bytes)
            self._stores.writer(name).ingest(kind, table, source)
            return int(table.num_rows)

        rows = await self._run(ingested)
        self._telemetry.wrote("event", rows)
        return json_answer({"status": "OK", "rows": rows})

    # ---- subscriptions ---------------------------------------------------------------------------------

    async def subscribe(self, request: HttpRequest, call: Call) -> Response:
        """Stream the events that a subscriber has not processed yet, and later ones."""
        name = self._name(request, call, writes=False)
        if self._streams[name] >= self._service.options.max_concurrency:
            raise Refusal(429, "concurrency", "the event store has too many subscribers at once", 1)
        subscription = await self._run(self._subscription, request, name)
        last = request.headers.get("last-event-id") or request.query_params.get("cursor")
        if last:
            subscription.resume(_cursor(last))
        follow = request.query_params.get("follow", "true") != "false"
        return StreamingResponse(
            self._counted(name, self._batches(request, call, subscription, follow=follow)),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    async def _counted(self, name: str, parts: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
        """Yield a stream, which counts as a request of its store until it ends."""
        self._streams[name] += 1
        try:
            async with aclosing(parts):
                async for part in parts:
                    yield part
        finally:
            self._streams[name] -= 1

    def _subscription(self, request: HttpRequest, name: str) -> Subscription:
        types = request.query_params.get("types")
        store = self._stores.get(name)
        return store.subscribe(request.path_params["name"], None if types is None else types.split(","))

    async def _batches(
        self, request: HttpRequest, call: Call, subscription: Subscription, *, follow: bool
    ) -> AsyncGenerator[bytes, None]:
        spoke, pause = time.monotonic(), _SECONDS_BETWEEN[0]
        yield b": events\n\n"
        while True:
            batches, gave = iter(subscription), False
            while (batch := await self._service.run(next, batches, None)) is not None:
                gave = True
                for start in range(0, batch.rows.num_rows, _BATCH_ROWS):
                    part = batch.rows.slice(start, _BATCH_ROWS)
                    is_last = start + _BATCH_ROWS >= batch.rows.num_rows
                    # Only the end of a batch is a place to go on from.
                    place = f"id: {_place(batch.cursor)}\n" if is_last else ""
                    rows = msgspec.json.encode(part.to_pylist()).decode()
                    yield f"{place}event: batch\ndata: {rows}\n\n".encode()
                self._telemetry.rows_returned.inc(batch.rows.num_rows)
                spoke = time.monotonic()
                if self._service.ends_streams or not await self._service.is_good(call.key):
                    return
            pause = _SECONDS_BETWEEN[0] if gave else min(2 * pause, _SECONDS_BETWEEN[1])
            if not follow or self._service.ends_streams or await request.is_disconnected():
                return
            if not await self._service.is_good(call.key):
                return
            if time.monotonic() - spoke > _SECONDS_SILENT:
                spoke = time.monotonic()
                yield b": nothing new\n\n"
            await asyncio.sleep(pause)

    async def commit(self, request: HttpRequest, call: Call) -> Response:
        """Record everything up to a position as processed by a subscriber."""
        # It decides what whoever else goes by the name is given.
        name = self._name(request, call, writes=True)
        body = decoded(await self._service.body(request))
        known_only(body, members(shapes.Commit), "a commit")
        cursor = _cursor(body.get("cursor"))

        def committed() -> None:
            subscription = self._subscription(request, name)
            subscription.resume(cursor)
            subscription.commit()

        await self._run(committed)
        return json_answer({"status": "OK"})


def _command(raw: bytes, content_type: str) -> str:
    if len(raw) > _MOST_COMMAND_BYTES:
        raise InputError(
            f"a command has at most {_MOST_COMMAND_BYTES:,} bytes", hint="Append many events as a batch"
        )
    if content_type.startswith("text/plain"):
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise InputError("the command is not Unicode text") from error
    body = decoded(raw)
    known_only(body, members(shapes.Execution), "an execution")
    command = body.get("command")
    if not isinstance(command, str):
        raise InputError("command is a text")
    return command


def _event(value: object, at: int) -> Any:
    one = mapping(value, f"event {at}")
    known_only(one, members(shapes.Event), f"event {at}")
    if not isinstance(one.get("type"), str):
        raise InputError(f"event {at} has a type")
    payload = mapping(one.get("payload"), f"payload of event {at}")
    timestamp = one.get("timestamp")
    return (one["type"], payload) if timestamp is None else (one["type"], payload, timestamp)


def _source(request: HttpRequest) -> weir.Source | None:
    name, number = request.query_params.get("source"), digits(request.query_params.get("number", ""))
    if name is None:
        return None
    if number is None:
        raise InputError("a source has a number")
    return weir.Source(name, number)


def _told(result: Any) -> dict[str, Any]:
    """Return the result of a command without rows."""
    if isinstance(result, weir.events.Appended):
        return {"status": "OK", "ids": list(result.ids), "version": result.version}
    return {"status": "OK"} if result is None else {"status": "OK", "result": str(result)}


def _repeated(ids: list[int]) -> dict[str, Any]:
    """Return the result of appending events, from their ids."""
    return {"status": "OK", "ids": ids, "version": ids[-1]}


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    # A few at a time: other threads run in between, and an abandoned request ends.
    rows: list[dict[str, Any]] = []
    for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
        check_cancelled()
        rows += batch.to_pylist()
    return rows


def _as_arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    whole_: bytes = sink.getvalue().to_pybytes()
    return whole_


def _place(cursor: Cursor) -> str:
    return base64.urlsafe_b64encode(json.dumps(cursor.to_json()).encode()).decode()


def _cursor(text: object) -> Cursor:
    try:
        if not isinstance(text, str):
            raise ValueError("no text")
        stored = json.loads(base64.b64decode(text.encode(), altchars=b"-_", validate=True))
        cursor = Cursor.from_json(stored)
        if not all(0 <= shard < 1 << 10 and 0 <= last < 1 << 63 for shard, last in cursor.seen.items()):
            raise ValueError("out of range")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError("the cursor is not valid for a subscription") from error
    return cursor


def event_routes(
    service: Service, dispatch: Dispatch, telemetry: Telemetry, stores: EventStores
) -> list[Route]:
    """Return the routes of event stores."""
    calls = _Calls(service, telemetry, stores)
    one = "/v1/events/{store}"
    return [
        dispatch.route("/v1/events", "GET", calls.list, Shape(answer=shapes.Stores)),
        dispatch.route(one, "PUT", calls.create, Shape(answer=shapes.Store)),
        dispatch.route(
            f"{one}/execute",
            "POST",
            calls.execute,
            Shape(
                body=shapes.Execution, body_media=("text/plain",), answer=shapes.Done, answer_media=(_ARROW,)
            ),
        ),
        dispatch.route(f"{one}/batch", "POST", calls.batch, Shape(body=shapes.Batch, answer=shapes.Done)),
        dispatch.route(
            f"{one}/ingest",
            "POST",
            calls.ingest,
            Shape(parameters=shapes.IngestParameters, body_media=(_ARROW,), answer=shapes.Ingested),
        ),
        dispatch.route(
            f"{one}/subscriptions/{{name}}",
            "GET",
            calls.subscribe,
            Shape(parameters=shapes.SubscriptionParameters, answer_media=("text/event-stream",)),
        ),
        dispatch.route(
            f"{one}/subscriptions/{{name}}/commit",
            "POST",
            calls.commit,
            Shape(body=shapes.Commit, answer=shapes.Done),
        ),
    ]
