"""A request, as the routes are given it."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from weir.namespaces import Namespace
from weir.service.body import HeldBody

__all__ = ["HttpRequest"]


class HttpRequest(Request):
    """A request whose headers are looked up by hash, and that holds its body.

    Parameters
    ----------
    scope, receive, send
        As of an ASGI application.

    Attributes
    ----------
    held : HeldBody
        What the process holds of the body.
    whole : bytes, optional
        The body, once it was read.
    namespace : Namespace, optional
        The namespace, once it is known that the caller may write it.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self.held = HeldBody()
        self.whole: bytes | None = None
        self.namespace: Namespace | None = None
        # Of several headers of a name the first counts.
        self._by_name = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])
        }

    @property
    def headers(self) -> Mapping[str, str]:  # type: ignore[override]
        """The headers, by their names in lower case."""
        return self._by_name
