"""The routes of keys, and of parts of the dialect that are disabled."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from starlette.responses import Response
from starlette.routing import Route

from weir.errors import KeyNotFoundError, UnsupportedError
from weir.service.answers import json_answer
from weir.service.context import Call, Service
from weir.service.dispatch import Dispatch
from weir.service.fields import given, known_only, names, whole
from weir.service.openapi import Shape, members
from weir.service.refusals import Refusal
from weir.service.request import HttpRequest
from weir.service.zeppelin import shapes
from weir.service.zeppelin.namespaces import moment

__all__ = ["security_routes"]

_SWITCHED_OFF = {
    "principals": "rbac",
    "grants": "rbac",
    "policy": "rbac",
    "preservation": "preservation",
    "tokens": "tokens",
    "branches": "branches",
    "embedding_profile": "embedding_profile",
}


class _Calls:
    """The calls for keys."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def keys(self, request: HttpRequest, call: Call) -> Response:
        """List the keys for no more namespaces than that of the caller."""
        self._service.admin(call)
        keys = [
            key for key in await self._service.run(self._service.keys.list) if call.key.covers(key.namespaces)
        ]
        now = datetime.now(UTC)
        return json_answer(
            {
                "keys": [
                    {
                        "key_id": key.id,
                        "name": key.name,
                        "principal_id": key.name,
                        "role": key.role,
                        "namespaces": list(key.namespaces),
                        "created_at": moment(key.created_at),
                        "expires_at": None if key.expires_at is None else moment(key.expires_at),
                        "revokes_at": None,
                        "rotated_from": None,
                        "state": "expired" if key.is_expired(now) else "active",
                    }
                    for key in keys
                ],
                "policy_version": 1,
            }
        )

    async def create_key(self, request: HttpRequest, call: Call) -> Response:
        """Create a key, for no more namespaces than that of the caller."""
        self._service.admin(call)
        body = await self._service.json_body(request)
        if "principal_id" in body:
            raise _disabled("rbac")
        known_only(body, members(shapes.CreateKey), "a key")
        namespaces = names(given(body, "namespaces", []), "namespaces")
        self._service.admin_of(call, namespaces)
        seconds = whole(body, "expires_in_secs", 1, 10**9, 0)
        key, text = await self._service.run(
            self._service.keys.create,
            body.get("name"),
            body.get("role"),
            namespaces,
            timedelta(seconds=seconds) if seconds else None,
        )
        self._service.audit(call, "key.create", key.id)
        return json_answer(
            {"id": key.id, "key": text, "key_id": key.id, "api_key": text, "policy_version": 1}, 201
        )

    async def _key_id(self, request: HttpRequest, call: Call) -> str:
        """Return the id of a key, if it is for no more namespaces than that of the caller."""
        id: str = request.path_params["key_id"]
        key = await self._service.run(self._service.keys.get, id)
        if not call.key.covers(key.namespaces):
            raise KeyNotFoundError(f"there is no key {id!r:.40}")
        return id

    async def rotate_key(self, request: HttpRequest, call: Call) -> Response:
        """Replace the secret of a key."""
        self._service.admin(call)
        body = await self._service.json_body(request)
        known_only(body, members(shapes.Rotate), "a rotation")
        if body.get("overlap_secs"):
            raise UnsupportedError("an overlap of a key's texts")
        seconds = whole(body, "expires_in_secs", 1, 10**9, 0)
        id = await self._key_id(request, call)
        expires = timedelta(seconds=seconds) if seconds else None
        key, text = await self._service.run(self._service.keys.rotate, id, expires)
        self._service.audit(call, "key.rotate", key.id)
        return json_answer(
            {
                "id": key.id,
                "key": text,
                "key_id": key.id,
                "api_key": text,
                "policy_version": 1,
                "rotated_from": id,
            },
            201,
        )

    async def revoke_key(self, request: HttpRequest, call: Call) -> Response:
        """Revoke a key."""
        self._service.admin(call)
        id = await self._key_id(request, call)
        await self._service.run(self._service.keys.revoke, id)
        self._service.audit(call, "key.revoke", id)
        return json_answer({"key_id": id, "policy_version": 1})

    async def disabled(self, request: HttpRequest, call: Call) -> Response:
        """Report that a part of the dialect is disabled."""
        feature = next(part for part in reversed(request.url.path.split("/")) if part in _SWITCHED_OFF)
        raise _disabled(_SWITCHED_OFF[feature])


def _disabled(feature: str) -> Refusal:
    return Refusal(403, "feature_disabled", f"feature is disabled by server configuration: {feature}")


def security_routes(service: Service, dispatch: Dispatch) -> list[Route]:
    """Return the routes."""
    calls = _Calls(service)
    one = "/v1/namespaces/{namespace}"
    switched_off = [
        *(("/v1/security/principals", method) for method in ("GET", "POST")),
        *(("/v1/security/grants", method) for method in ("GET", "POST", "DELETE")),
        *(("/v1/security/preservation", method) for method in ("GET", "POST")),
        ("/v1/security/preservation/{lock}/release", "POST"),
        ("/v1/security/policy", "GET"),
        ("/v1/security/tokens", "POST"),
        *((f"{one}/branches", method) for method in ("GET", "POST")),
        (f"{one}/embedding_profile", "PUT"),
    ]
    return [
        dispatch.route("/v1/security/keys", "GET", calls.keys, Shape(answer=shapes.Keys)),
        dispatch.route(
            "/v1/security/keys",
            "POST",
            calls.create_key,
            Shape(body=shapes.CreateKey, answer=shapes.CreatedKey, statuses=(201,)),
        ),
        dispatch.route(
            "/v1/security/keys/{key_id}", "DELETE", calls.revoke_key, Shape(answer=shapes.RevokedKey)
        ),
        dispatch.route(
            "/v1/security/keys/{key_id}/rotate",
            "POST",
            calls.rotate_key,
            Shape(body=shapes.Rotate, answer=shapes.CreatedKey, statuses=(201,), is_optional=True),
        ),
        *(dispatch.route(path, method, calls.disabled) for path, method in switched_off),
    ]
