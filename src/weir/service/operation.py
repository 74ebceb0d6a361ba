"""The routes for operators: liveness, readiness and metrics."""

from __future__ import annotations

from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from weir.service.answers import json_answer
from weir.service.context import Call, Service
from weir.service.dispatch import Dispatch
from weir.service.openapi import Shape
from weir.service.refusals import Refusal
from weir.service.telemetry import Telemetry

__all__ = ["operation_routes"]


class Health(msgspec.Struct, kw_only=True):
    """The liveness response."""

    status: Literal["ok"]


class Readiness(msgspec.Struct, kw_only=True):
    """The readiness response."""

    status: Literal["ready"]
    s3_connected: bool


def operation_routes(service: Service, dispatch: Dispatch, telemetry: Telemetry) -> list[Route]:
    """Return the routes."""

    async def healthy(request: Request, call: Call) -> Response:
        """Report that the process is alive."""
        return json_answer({"status": "ok"})

    async def ready(request: Request, call: Call) -> Response:
        """Report whether the process is ready."""
        reason = service.not_ready()
        if reason:
            raise Refusal(503, "not_ready", reason, 1)
        return json_answer({"status": "ready", "s3_connected": True})

    async def metrics(request: Request, call: Call) -> Response:
        """Return the metrics of the process, to administrators."""
        service.admin(call)
        return Response(await service.run(telemetry.exposition), media_type=telemetry.content_type)

    return [
        dispatch.route("/healthz", "GET", healthy, Shape(answer=Health), open=True),
        dispatch.route("/readyz", "GET", ready, Shape(answer=Readiness), open=True),
        dispatch.route("/metrics", "GET", metrics, Shape(answer_media=("text/plain",))),
    ]
