"""The application: the routes of every dialect and those for operators."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weir.service.answers import json_answer
from weir.service.context import Service, request_id_of
from weir.service.dispatch import Dispatch
from weir.service.events import event_routes
from weir.service.events.stores import EventStores
from weir.service.openapi import description
from weir.service.operation import operation_routes
from weir.service.telemetry import Telemetry
from weir.service.turbopuffer import turbopuffer_routes
from weir.service.turbopuffer.envelope import Refused, envelope
from weir.service.zeppelin import zeppelin_routes
from weir.service.zeppelin.envelope import Refused as ZeppelinRefused
from weir.service.zeppelin.envelope import envelope as zeppelin_envelope

__all__ = ["application"]


def application(service: Service, telemetry: Telemetry, stores: EventStores) -> Starlette:
    """Return the application of a process."""
    dispatch = Dispatch(service, envelope, telemetry, Refused)
    of_zeppelin = Dispatch(service, zeppelin_envelope, telemetry, ZeppelinRefused)
    routes = [
        *turbopuffer_routes(service, dispatch, telemetry),
        *operation_routes(service, dispatch, telemetry),
        *event_routes(service, dispatch, telemetry, stores),
        *zeppelin_routes(service, of_zeppelin, telemetry),
    ]

    described = description([*dispatch.declared, *of_zeppelin.declared])

    async def describe(request: Request) -> Response:
        return json_answer(described, headers={"x-request-id": request_id_of(request.headers)})

    routes.append(Route("/openapi.json", describe, methods=["GET"]))

    async def unknown(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        message = {404: "there is no such path", 405: "the path does not take this method"}.get(
            status, "the request was refused"
        )
        headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
        headers["x-request-id"] = request_id_of(request.headers)
        return json_answer({"status": "error", "error": message}, status, headers)

    made = Starlette(routes=routes, exception_handlers={HTTPException: unknown})
    made.router.redirect_slashes = False  # what is sent to a path that there is not goes nowhere else
    return made
