"""Request dispatch: authentication, handlers, and error responses."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Protocol

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from weir.service.answers import JsonAnswer, json_answer
from weir.service.context import Call, Service, request_id_of
from weir.service.keys.key import ANYBODY
from weir.service.openapi import Declared, Shape
from weir.service.ownership.forwarding import FORWARDED, UnreachableError
from weir.service.protocol import AT_ONCE
from weir.service.refusals import Refusal, refusal_of
from weir.service.request import HttpRequest
from weir.service.telemetry import Telemetry
from weir.service.tracing import Tracing

__all__ = ["Dispatch", "Envelope", "Handler"]

_log = logging.getLogger("weir.service.requests")

Handler = Callable[[HttpRequest, Call], Awaitable[Response]]


class Envelope(Protocol):
    """The error format of a dialect."""

    def __call__(self, refusal: Refusal, request_id: str) -> object:
        """Return the content of the response."""
        ...


class _Endpoint:
    """The end of a route: all errors are answered before, so that nothing has to be caught around it."""

    def __init__(self, answer: Callable[[HttpRequest], Awaitable[Response]]) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._answer(HttpRequest(scope, receive, send))
        if isinstance(response, JsonAnswer):
            at_once = scope.get(AT_ONCE)
            if at_once is not None and at_once(response.status_code, response.raw_headers, response.body):
                return
        await response(scope, receive, send)


class Dispatch:
    """Turns the handlers of a dialect into routes.

    Parameters
    ----------
    service : Service
        The shared state of requests.
    envelope : Envelope
        The error format.
    telemetry : Telemetry
        Counts.
    refused : type
        The type of the error content.
    """

    def __init__(
        self,
        service: Service,
        envelope: Envelope,
        telemetry: Telemetry,
        refused: type[msgspec.Struct],
    ) -> None:
        self._refused_type = refused
        self._service = service
        self._envelope = envelope
        self._telemetry = telemetry
        self._tracing = Tracing()
        self.declared: list[Declared] = []

    def route(
        self,
        path: str,
        method: str,
        handler: Handler,
        shape: Shape | None = None,
        *,
        open: bool = False,
        owner: bool = False,
    ) -> Route:
        """Return the route of a handler.

        Parameters
        ----------
        path, method : str
            The path and method of the requests.
        handler : callable
            Handles the requests.
        shape : Shape, optional
            Its input and output, for the API description. Default: none.
        open : bool
            Whether no key is needed. Default False.
        owner : bool
            Whether the process that writes the namespace has to answer. Default False: any process.
        """
        # As logs have it, which have no places.
        route = f"{method} {path.strip('/').replace('{', '').replace('}', '')}"

        async def answer(request: HttpRequest) -> Response:
            call = Call(ANYBODY, request_id_of(request.headers))
            with self._tracing.request(method, path, request.headers, call.request_id) as span:
                try:
                    with self._service.deadlines.one() as deadline:
                        if self._service.is_stopping:
                            raise Refusal(503, "stopping", "the process is about to end", 1)
                        if not open:
                            self._service.check_storage()
                            call.key = await self._service.caller(request)
                            self._service.rates.take(call.key.id)
                        async with (
                            nullcontext()
                            if open
                            else self._service.concurrency.one(_counted_with(request, call))
                        ):
                            passed_on = await self._passed_on(request, call) if owner else None
                            response = await handler(request, call) if passed_on is None else passed_on
                    if deadline.cancelled:
                        raise Refusal(503, "deadline", "the request timed out", 1)
                except Exception as error:
                    response = self._refused(error, call, request, route)
                finally:
                    request.whole = b""
                    self._service.bodies.free(request.held)
                span.answered(response.status_code)
            if isinstance(response, JsonAnswer):
                response.raw_headers.append((b"x-request-id", call.request_id.encode()))
            else:
                response.headers["x-request-id"] = call.request_id
            self._telemetry.answered(path, method, response.status_code, call)
            return response

        summary = (handler.__doc__ or "").partition("\n")[0].rstrip(".")
        self.declared.append(Declared(path, method, summary, open, self._refused_type, shape or Shape()))
        return Route(path, _Endpoint(answer), methods=[method])

    async def _passed_on(self, request: HttpRequest, call: Call) -> Response | None:
        """Return the response of the process that writes the namespace; None if that is this one."""
        service = self._service
        owners = service.owners
        namespace = service.namespace(call, request.path_params["namespace"], writes=True)
        request.namespace = namespace
        body = await service.body(request)
        if owners is None or FORWARDED in request.headers or namespace.is_writing:
            return None
        owner = await service.run(owners.elsewhere, namespace)
        if owner is None:
            return None
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        try:
            status, headers, content = await service.forward(
                owner.url,
                request.method,
                target,
                {**request.headers, "x-request-id": call.request_id},
                body,
                lambda: owner in owners.members.live(),
            )
        except UnreachableError:
            # It is gone: whoever is asked next takes its namespaces over, this process first.
            owners.members.suspect(owner)
            return None
        except TimeoutError:
            # One request takes long there, and the others need no new owner.
            raise
        except OSError as error:
            owners.members.suspect(owner)
            raise Refusal(503, "owner_changing", "the process that writes the namespace ended", 1) from error
        self._telemetry.forwarded.inc()
        return Response(content, status, headers)

    def _refused(self, error: Exception, call: Call, request: HttpRequest, route: str) -> Response:
        if isinstance(error, TimeoutError) and not hasattr(error, "message"):
            refusal: Refusal | None = Refusal(503, "deadline", "the request timed out", 1)
        elif isinstance(error, ClientDisconnect):
            refusal = Refusal(400, "client_gone", "the client disconnected before the body arrived")
        else:
            refusal = refusal_of(error)
        if refusal is None or refusal.code == "corruption":
            _log.error(
                "request failed",
                exc_info=error,
                extra={"event_fields": {"route": route, "request_id": call.request_id}},
            )
        if refusal is None:
            refusal = Refusal(500, "internal", f"the service failed; request {call.request_id}")
        self._telemetry.refused.labels(refusal.code).inc()
        if refusal.status == 403 and call.key is not ANYBODY:
            target = request.path_params.get("namespace") or request.path_params.get("store") or ""
            self._service.audit(call, "request", target, "refused")
        content = self._envelope(refusal, call.request_id)
        return json_answer(content, refusal.status, refusal.all_headers())


def _counted_with(request: HttpRequest, call: Call) -> str:
    """Return the group a request is counted with: its namespace or event store, or else its key."""
    namespace = request.path_params.get("namespace")
    if namespace is not None:
        return str(namespace)
    store = request.path_params.get("store")
    return f"key/{call.key.id}" if store is None else f"events/{store}"
