"""The application: the routes of every dialect and those for operators."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

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

__all__ = ["Application", "application"]


def application(service: Service, telemetry: Telemetry, stores: EventStores) -> Application:
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
    return Application(made, routes)


class Application:
    """The application, which finds the calls of a namespace by hash, and others by their patterns in turn.

    Parameters
    ----------
    app : Starlette
        Answers everything.
    routes : sequence of Route
        Its routes.
    """

    def __init__(self, app: Starlette, routes: Sequence[Route]) -> None:
        self._app = app
        self._endpoints: dict[tuple[str, str, str], ASGIApp] = {}
        for route in routes:
            before, parameter, after = route.path.partition("/{namespace}")
            if parameter and "{" not in after:
                for method in route.methods or ():
                    self._endpoints.setdefault((method, before, after), route.app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http" and not scope.get("root_path"):
            path: str = scope["path"]
            # As in "/v2/namespaces/docs/query".
            parts = path.split("/", 4)
            if len(parts) > 3 and parts[3]:
                after = f"/{parts[4]}" if len(parts) > 4 else ""
                endpoint = self._endpoints.get((scope["method"], f"/{parts[1]}/{parts[2]}", after))
                if endpoint is not None:
                    scope["path_params"] = {"namespace": parts[3]}
                    await endpoint(scope, receive, send)
                    return
        await self._app(scope, receive, send)
