"""The shared state of a process's requests, and the context of one request."""

from __future__ import annotations

import logging
import math
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from weir.errors import NamespaceNotFoundError, TableNotFoundError
from weir.namespaces import Namespace, Namespaces, Write, Written
from weir.namespaces.names import check_namespace_name
from weir.namespaces.statistics import statistics_of
from weir.service.background import Background
from weir.service.body import Bodies, decoded, read_body
from weir.service.deadlines import Deadlines
from weir.service.idempotency import IdempotentWrites, KeyedWrite
from weir.service.keys.key import ANYBODY, Key
from weir.service.keys.store import KeyStore
from weir.service.limits import Concurrency, Rates
from weir.service.logs import AUDIT
from weir.service.options import ServiceOptions
from weir.service.ownership.forwarding import Forwarder
from weir.service.ownership.owners import Owners
from weir.service.refusals import Refusal
from weir.service.request import HttpRequest
from weir.service.request_threads import RequestThreads
from weir.service.write_groups import WriteGroups

__all__ = ["Call", "Service", "request_id_of"]

Result = TypeVar("Result")

_audit = logging.getLogger(AUDIT)
_THREADS = 64
_THREADS_OF_ONE = 48
"""Most of them that one namespace may use: the others are for other namespaces."""
_REQUEST_ID = re.compile(r"[A-Za-z0-9._\-]{1,64}\Z")


def request_id_of(headers: Mapping[str, str]) -> str:
    """Return the id of a request: its own, or a new one."""
    given = headers.get("x-request-id", "")
    # No secret: asking the system for one would let other threads go first.
    return given if _REQUEST_ID.match(given) else f"{random.getrandbits(64):016x}"


@dataclass(slots=True)
class Call:
    """An authenticated request.

    Parameters
    ----------
    key : Key
        The key of the caller.
    request_id : str
        The id of the request in logs and responses.
    began : float
        When it began, by the monotonic clock.
    """

    key: Key
    request_id: str = field(default_factory=lambda: request_id_of({}))
    began: float = field(default_factory=time.monotonic)

    @property
    def milliseconds(self) -> int:
        """The elapsed time."""
        return int((time.monotonic() - self.began) * 1000)


class Service:
    """The shared state of the requests of one process.

    Parameters
    ----------
    namespaces : Namespaces
        The namespaces below the root.
    keys : KeyStore
        The keys below the root.
    options : ServiceOptions
        The options of the service.
    owners : Owners, optional
        Says which process writes which namespace. Default: a single process.
    """

    def __init__(
        self,
        namespaces: Namespaces,
        keys: KeyStore,
        options: ServiceOptions,
        owners: Owners | None = None,
    ) -> None:
        self.namespaces = namespaces
        self.keys = keys
        self.options = options
        self.owners = owners
        self.idempotent = IdempotentWrites(namespaces.store)
        self.concurrency = Concurrency(options.max_concurrency, _THREADS_OF_ONE)
        self.rates = Rates(options.requests_per_second)
        self.deadlines = Deadlines(options.request_timeout)
        self.bodies = Bodies(max(options.memory // 4, options.max_request_bytes))
        self.hurry: Callable[[], None] = lambda: None
        self.forwarder = Forwarder(options.request_timeout, options.tls_certificate)
        self.is_stopping = False
        self.loops: dict[str, Callable[[], bool]] = {}
        self._threads = RequestThreads("weir-request", _THREADS)
        # Two processes that pass requests on to each other never wait for a thread of their own.
        self._forwarding = RequestThreads("weir-forward", _THREADS)
        self._background = Background()
        self._groups = WriteGroups(self._write_many)

    async def body(self, request: HttpRequest) -> bytes:
        """Return the body of a request, decompressed if necessary.

        Raises
        ------
        Refusal
            If it is too large, or not encoded as declared.
        """
        if request.whole is None:
            take = partial(self.bodies.take, request.held)
            request.whole = await read_body(request, self.options.max_request_bytes, take)
        return request.whole

    async def json_body(self, request: HttpRequest) -> dict[str, Any]:
        """Return the JSON object that the body of a request is; an empty one if there is no body.

        Raises
        ------
        Refusal
            As of :meth:`body`, and if it is none.
        """
        raw = await self.body(request)
        return decoded(raw) if raw.strip() else {}

    async def run(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run blocking work on a thread."""
        return await self._threads.run(work, *arguments)

    async def write(self, namespace: Namespace, write: Write | KeyedWrite) -> Written:
        """Make a small write, together with others that wait: see :meth:`WriteGroups.write`."""
        return await self._groups.write(namespace, write)

    async def _write_many(
        self, namespace: Namespace, writes: Sequence[Write | KeyedWrite]
    ) -> Sequence[Written | Exception]:
        def work() -> Sequence[Written | Exception]:
            self.check_backlog(namespace)
            # Nobody has been told of any of them: those with keys may come after the others.
            plain = iter(namespace.write_many([one for one in writes if isinstance(one, Write)]))
            keyed = [one for one in writes if isinstance(one, KeyedWrite)]
            once = iter(self.idempotent.write_many(namespace, keyed))
            return [next(plain if isinstance(one, Write) else once) for one in writes]

        return await self.run(work)

    async def read(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run a read on a thread; it ends soon after the request is abandoned."""
        return await self._threads.read(work, *arguments)

    async def forward(
        self,
        url: str,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        lives: Callable[[], bool],
    ) -> tuple[int, dict[str, str], bytes]:
        """Forward a request: see :meth:`Forwarder.forward`."""
        forward = self.forwarder.forward
        return await self._forwarding.run(forward, url, method, target, headers, body, lives)

    def later(self, work: Callable[..., object], *arguments: Any) -> None:
        """Run something in the background: see :meth:`Background.begin`."""
        self._background.begin(work, *arguments)

    async def caller(self, request: HttpRequest) -> Key:
        """Return the caller's key.

        Raises
        ------
        Refusal
            401 without a valid key.
        """
        if not self.options.auth:
            return ANYBODY
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        key = None
        if scheme.lower() == "bearer" and text:
            text = text.strip()
            # Going to a thread and back would take longer.
            known = self.keys.knows(text)
            key = self.keys.authenticate(text) if known else await self.run(self.keys.authenticate, text)
        if key is None:
            raise Refusal(
                401,
                "unauthorized",
                "the request needs a valid key",
                headers={"www-authenticate": "Bearer"},
            )
        return key

    def namespace(self, call: Call, name: str, *, writes: bool) -> Namespace:
        """Return a namespace, if the caller may use it.

        Raises
        ------
        Refusal
            403 outside the globs of the key, whether or not the namespace exists, and for writes with a
            reader key.
        InputError
            If the name is not valid.
        """
        check_namespace_name(name)
        self.check_access(call, name, writes=writes)
        return self.namespaces.namespace(name)

    def check_access(self, call: Call, name: str, *, writes: bool) -> None:
        """Refuse callers that may not use a namespace or event store of a name.

        Raises
        ------
        Refusal
            403.
        """
        if not call.key.may_see(name):
            raise Refusal(403, "forbidden", "the key is not for this namespace")
        if writes and not call.key.may_write:
            raise Refusal(403, "forbidden", "the key is for reading only")

    async def is_good(self, key: Key) -> bool:
        """Whether a key that was valid before still is."""
        return not self.options.auth or await self.run(self.keys.is_good, key)

    def check_write(self, write: Write) -> None:
        """Refuse a write of too many documents.

        Raises
        ------
        Refusal
            413.
        """
        rows = write.named_documents
        if rows > self.options.max_rows:
            raise Refusal(
                413,
                "too_many_documents",
                f"a write has at most {self.options.max_rows:,} documents, got {rows:,}",
            )

    def check_backlog(self, namespace: Namespace) -> None:
        """Refuse a write to a namespace with too many unmerged bytes, and start its upkeep early.

        Raises
        ------
        Refusal
            429.
        """
        if not namespace.is_writing:
            return
        try:
            waiting = statistics_of(namespace).waiting_bytes
        except (NamespaceNotFoundError, TableNotFoundError):
            return  # it was deleted a moment ago: the write finds out whether it makes a new one
        if waiting <= self.options.max_unindexed_bytes:
            return
        self.hurry()
        raise Refusal(
            429, "too_many_requests", "the namespace has too much to merge and index at the moment", 2
        )

    def not_ready(self) -> str:
        """Return why the process cannot work; empty if it can. Makes no storage requests."""
        for name, is_alive in self.loops.items():
            if not is_alive():
                return f"the loop of {name} has ended"
        return "" if self.owners is None else self.owners.members.trouble()

    @property
    def has_other_storage(self) -> bool:
        """Whether the storage is not the one that was served, as far as known."""
        return self.owners is not None and self.owners.members.is_elsewhere

    @property
    def ends_streams(self) -> bool:
        """Whether answers that go on for long have to end."""
        return self.is_stopping or self.has_other_storage

    def check_storage(self) -> None:
        """Refuse requests if the storage is not the one that was served.

        What this process knows of its namespaces is of the former one, and would be answered as if it were
        there.

        Raises
        ------
        Refusal
            503.
        """
        if self.has_other_storage:
            raise Refusal(
                503,
                "storage_replaced",
                "the storage is not the one that was served. If a backup was put in its place, this process "
                "has to be started again",
                10,
            )

    def admin(self, call: Call) -> None:
        """Refuse callers that are not administrators."""
        if not call.key.is_admin:
            raise Refusal(403, "forbidden", "the key is not for administration")

    def admin_of(self, call: Call, namespaces: Sequence[str]) -> None:
        """Refuse callers that are not administrators of all that some globs take; none take everything."""
        self.admin(call)
        if not call.key.covers(namespaces):
            raise Refusal(403, "forbidden", "the key is for fewer namespaces")

    def audit(self, call: Call, action: str, target: str, outcome: str = "done") -> None:
        """Write an audit log entry."""
        _audit.info(
            "%s %s %s",
            action,
            target,
            outcome,
            extra={
                "event_fields": {
                    "event": "audit",
                    "action": action,
                    "target": target,
                    "outcome": outcome,
                    "key": call.key.id,
                    "request_id": call.request_id,
                }
            },
        )

    def close(self, seconds: float = math.inf) -> bool:
        """Close everything: flush, release, and wait for running work.

        Parameters
        ----------
        seconds : float
            How long to wait for each of background work, forwarded requests and requests. Default: until
            they end.

        Returns
        -------
        bool
            Whether all of it has ended.
        """
        has_ended = [one.close(seconds) for one in (self._background, self._forwarding, self._threads)]
        self.forwarder.close()
        self.idempotent.close()
        self.namespaces.close()
        return all(has_ended)

    @property
    def is_answering(self) -> bool:
        """Whether a request is still under way on a thread."""
        return self._threads.is_busy or self._forwarding.is_busy
