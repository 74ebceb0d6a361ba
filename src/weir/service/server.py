"""The server: listens, announces itself, and shuts down in order."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import json
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import uvicorn

import weir
import weir.namespaces
from weir.engine.stop_signals import STOP_SIGNALS
from weir.errors import OptionError
from weir.service.app import application
from weir.service.context import Service
from weir.service.events.stores import EventStores
from weir.service.keys.store import KeyStore
from weir.service.logs import logging_as_json
from weir.service.options import ServiceOptions, parse_listen
from weir.service.ownership.members import Members
from weir.service.ownership.owners import Owners
from weir.service.protocol import BoundedProtocol
from weir.service.telemetry import Telemetry
from weir.service.upkeep import Upkeep
from weir.storage.open import open_store

__all__ = ["listening_line", "serve"]

_SECONDS_TO_FINISH = 10
_SECONDS_FOR_UPKEEP = 3.0
_SECONDS_FOR_BACKGROUND = 1.0
_SECONDS_TO_END = 18.0
_SECONDS_BETWEEN_TICKS = 1.0


def serve(root: str, options: ServiceOptions, listening: Callable[[str], None]) -> None:
    """Answer requests until the process is asked to end.

    On SIGTERM or SIGINT no further requests are accepted, running ones are finished, everything is flushed
    and released, and the call returns.

    Parameters
    ----------
    root : str
        The directory or bucket path of the namespaces.
    options : ServiceOptions
        The options of the service.
    listening : callable
        Called with the URL once requests are answered.

    Raises
    ------
    OptionError
        If keys are required but there are none, or it is not possible to listen at the address.
    """
    with logging_as_json(options.audit_log):
        _serve(root, options, listening)


def _serve(root: str, options: ServiceOptions, listening: Callable[[str], None]) -> None:
    store = open_store(root, options.storage_options, fsync=options.fsync)
    keys = KeyStore(store)
    if options.auth and keys.is_empty():
        raise OptionError(
            "there is no key, and all requests need one",
            hint="Make one with 'weir keys create', or serve loopback with --no-auth",
        )
    listener = _bound(options.listen)
    try:
        url = _url(listener, options)
        engine = weir.Engine(
            read_cache_bytes=max(options.memory // 2, 1),
            unflushed_bytes=max(options.memory // 4, 1),
            maintenance="off",
        )
        members = Members(store, options.advertise or url, Members.new_id())
        namespaces = weir.namespaces.open(
            root,
            storage_options=options.storage_options,
            fsync=options.fsync,
            engine=engine,
            max_attributes=options.max_attributes,
            lease_ttl=options.lease_ttl,
            holder=members.here.id,
            address=members.here.url,
        )
        telemetry = Telemetry(engine.metrics, namespaces)
        service = Service(namespaces, keys, options, Owners(members))
        service.loops["membership"] = members.is_alive
        stores = EventStores(root, store, options, members.here.url)
        upkeep = Upkeep(service, telemetry, options.compaction_interval)
        config = uvicorn.Config(
            application(service, telemetry, stores),
            log_config=None,
            access_log=False,
            lifespan="off",
            http=BoundedProtocol,
            ws="none",
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=_SECONDS_TO_FINISH,
            ssl_certfile=options.tls_certificate or None,
            ssl_keyfile=options.tls_key or None,
        )
        server = _Server(config, service, lambda: listening(url))
        members.start()
        upkeep.start()
        # What is there now stays: looking through it for cycles again and again would hold requests up.
        gc.collect()
        gc.freeze()
        try:
            with asyncio.Runner(loop_factory=_fast_loop()) as runner:
                runner.run(server.serve(sockets=[listener]))
        finally:
            # From here on the others take over what this process wrote.
            members.stop()
            is_merged = upkeep.stop(_SECONDS_FOR_UPKEEP)
            is_done = service.close(_SECONDS_FOR_BACKGROUND)
            stores.close()
            if not (is_merged and is_done):
                # A merge that is cut off has changed nothing; whoever takes the namespace over merges it. Nor
                # has a copy that is cut off: it is told that it failed. A request has not been answered.
                _end_now(0)
            engine.close()
    finally:
        listener.close()


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the event loop, where there is a faster one than that of the library."""
    try:
        import uvloop
    except ImportError:
        return None
    made: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return made


class _Server(uvicorn.Server):
    """A server that returns on a signal instead of raising the signal again."""

    def __init__(self, config: uvicorn.Config, service: Service, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._service = service
        self._announce = started
        self._is_ending = False
        self._asked = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        """Tick until the process is asked to end: once a second for the date in headers, not ten times."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), _SECONDS_BETWEEN_TICKS)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle termination signals, and restore the previous handlers afterwards."""
        before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        for number in STOP_SIGNALS:
            signal.signal(number, self._asked_to_end)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _asked_to_end(self, number: int, frame: object) -> None:
        self._service.is_stopping = True
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._asked.set)
        if not self._is_ending:
            self._is_ending = True
            last = threading.Timer(_SECONDS_TO_END, self._end_at_last)
            last.daemon = True
            last.start()
        logging.getLogger("weir.service").info(
            "ending", extra={"event_fields": {"event": "service.ending", "signal": number}}
        )

    def _end_at_last(self) -> None:
        """End although not everything is released: what was acknowledged is there, the leases run out.

        The exit code is 0 if a request is still under way, which was not answered; 1 if something else does
        not end, as when the storage does not answer while writes are flushed.
        """
        _end_now(0 if self._service.is_answering else 1)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and announce it."""
        await super().startup(sockets)
        if self.started:
            self._announce()


def _end_now(code: int) -> None:
    """End the process although something in it is still running."""
    logging.getLogger("weir.service").warning(
        "ended early", extra={"event_fields": {"event": "service.ended_early", "code": code}}
    )
    time.sleep(0.2)  # for the log
    os._exit(code)


def _bound(listen: str) -> socket.socket:
    host, port = parse_listen(listen)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # From here on connections wait, and are not refused.
        listener.listen(1024)
    except OSError as error:
        raise OptionError(f"cannot listen at {listen}: {error.strerror or error}", where="listen") from error
    return listener


def _url(listener: socket.socket, options: ServiceOptions) -> str:
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        # Every address of the machine: others reach it by its name.
        host = socket.gethostname()
    scheme = "https" if options.tls_certificate else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def listening_line(url: str) -> str:
    """Return the line printed for programs once requests are answered."""
    return json.dumps({"event": "listening", "url": url})
