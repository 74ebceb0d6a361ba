"""What every request goes through: who asks, which answer, and how a client is told that it is refused."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weir.service.answers import json_answer
from weir.service.context import Call, Service
from weir.service.refusals import Refusal, refusal_of
from weir.service.telemetry import Telemetry

__all__ = ["Dispatch", "Envelope", "Handler"]

_log = logging.getLogger("weir.service.requests")

Handler = Callable[[Request, Call], Awaitable[Response]]


class Envelope(Protocol):
    """How a dialect tells of a refusal."""

    def __call__(self, refusal: Refusal, request_id: str) -> object:
        """Return the content of the answer."""
        ...


class Dispatch:
    """Makes routes of the handlers of a dialect.

    Parameters
    ----------
    service : Service
        What requests share.
    envelope : Envelope
        How refusals are told.
    telemetry : Telemetry
        Counts.
    """

    def __init__(self, service: Service, envelope: Envelope, telemetry: Telemetry) -> None:
        self._service = service
        self._envelope = envelope
        self._telemetry = telemetry

    def route(self, path: str, method: str, handler: Handler, *, open: bool = False) -> Route:
        """Return the route of a handler.

        Parameters
        ----------
        path, method : str
            Of the requests.
        handler : callable
            Answers them.
        open : bool
            Whether anybody may ask. Default False.
        """
        from weir.service.keys.key import ANYBODY

        async def answer(request: Request) -> Response:
            call = Call(ANYBODY)
            try:
                with anyio.fail_after(self._service.options.request_timeout):
                    if self._service.is_stopping:
                        raise Refusal(503, "stopping", "the process is about to end", 1)
                    if not open:
                        call.key = await self._service.caller(request)
                    response = await handler(request, call)
            except Exception as error:
                response = self._refused(error, call)
            response.headers["x-request-id"] = call.request_id
            self._telemetry.answered(path, method, response.status_code, call)
            return response

        return Route(path, answer, methods=[method])

    def _refused(self, error: Exception, call: Call) -> Response:
        if isinstance(error, TimeoutError) and not hasattr(error, "message"):
            refusal: Refusal | None = Refusal(
                503, "deadline", "the request took too long and was given up", 1
            )
        else:
            refusal = refusal_of(error)
        if refusal is None:
            _log.error(
                "request failed", exc_info=error, extra={"event_fields": {"request_id": call.request_id}}
            )
            refusal = Refusal(500, "internal", f"the service failed; request {call.request_id}")
        content = self._envelope(refusal, call.request_id)
        return json_answer(content, refusal.status, refusal.all_headers())
