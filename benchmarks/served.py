"""Services in processes of their own, and clients that take little of the processor's time."""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Clients", "Served", "connected", "request_of"]

_MOST_LINES = 20


class Served:
    """A service in a process of its own."""

    def __init__(self, root: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed with the service
        command = [sys.executable, "-m", "weir", "serve", str(root), "--listen", "127.0.0.1:0", "--json"]
        self._process = subprocess.Popen(
            [*command, "--no-auth", *options],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        assert self._process.stdout is not None
        url = urlsplit(json.loads(self._process.stdout.readline())["url"])
        self.process_id = self._process.pid
        self.address = (url.hostname or "", url.port or 0)

    def __enter__(self) -> Served:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()
        if kind is not None:
            self._log.seek(0)
            failed = [line for line in self._log if '"level": "info"' not in line]
            sys.stderr.writelines(failed[-_MOST_LINES:])
        self._log.close()

    def clients(self, count: int) -> AbstractContextManager[Clients]:
        """Connect so many clients."""
        return connected(self.address, count)


@contextmanager
def connected(address: tuple[str, int], count: int) -> Iterator[Clients]:
    """Connect so many clients to a service for the length of a block."""
    with ExitStack() as closing:
        yield Clients([closing.enter_context(socket.create_connection(address)) for _ in range(count)])


class Clients:
    """Connections that each send requests one after the other: with little of the processor's time."""

    def __init__(self, connections: Sequence[socket.socket]) -> None:
        self._connections = connections

    def told(self, request: bytes) -> Any:
        """Send a request; return what its answer says in JSON."""
        return json.loads(self.ask([request]) or b"{}")

    def ask(self, requests: Sequence[bytes]) -> bytes:
        """Send every request, and return the last answer's body once all are answered."""
        left, got = iter(requests), b""
        with selectors.DefaultSelector() as selector:
            for connection in self._connections:
                request = next(left, None)
                if request is not None:
                    connection.sendall(request)
                    selector.register(connection, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select():
                    answered = key.fileobj
                    assert isinstance(answered, socket.socket)
                    got = answer_to(answered)
                    request = next(left, None)
                    if request is None:
                        selector.unregister(answered)
                    else:
                        answered.sendall(request)
        return got


def answer_to(connection: socket.socket) -> bytes:
    got = connection.recv(1 << 16)
    while b"\r\n\r\n" not in got:
        got += connection.recv(1 << 16)
    head, _, body = got.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(1 << 16)
    if not head.startswith(b"HTTP/1.1 20"):
        raise RuntimeError(f"{head.decode()}\n{body.decode()}")
    return body


def request_of(path: str, content: bytes | object, **headers: str) -> bytes:
    """Return a request that posts something."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    lines = [f"POST {path} HTTP/1.1", "host: weir", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
