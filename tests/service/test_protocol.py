"""What a connection sends, and in how many pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

import weir.service.protocol
from weir.service.protocol import AT_ONCE, BoundedProtocol, GatheringTransport

_LARGE = bytes(100_000)


class Recorded(asyncio.Transport):
    """A transport that keeps what it is to send."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Any] = []

    def is_closing(self) -> bool:
        return "closed" in self.sent

    def write(self, data: Any) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.sent.append("closed")

    def pause_reading(self) -> None:
        self.sent.append("paused")


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ([b"head", b"body"], [b"headbody"]),
        ([b"head", b"", b"body", "closed"], [b"headbody", "closed"]),
        ([b"head", _LARGE, b"end"], [b"head", _LARGE, b"end"]),
        ([_LARGE, _LARGE], [_LARGE, _LARGE]),
        ([bytes(40_000)] * 3, [bytes(40_000), bytes(40_000), bytes(40_000)]),
        ([b"one", "later", b"another"], [b"one", b"another"]),
        (["closed"], ["closed"]),
    ],
)
def test_what_is_written_at_once_is_sent_at_once_and_in_order(
    written: list[bytes | str], sent: list[bytes | str]
) -> None:
    recorded = Recorded()

    async def write() -> None:
        transport = GatheringTransport(recorded)
        for one in written:
            if isinstance(one, bytes):
                transport.write(one)
            elif one == "later":
                await asyncio.sleep(0)
            else:
                transport.close()
                assert transport.is_closing()
        await asyncio.sleep(0)

    asyncio.run(write())
    assert recorded.sent == sent


def test_everything_else_is_done_by_the_transport() -> None:
    recorded = Recorded()

    async def use() -> None:
        GatheringTransport(recorded).pause_reading()

    asyncio.run(use())
    assert recorded.sent == ["paused"]


# ---- whole responses ---------------------------------------------------------------------------------------

_HEADERS = [(b"content-length", b"2"), (b"content-type", b"application/json")]
_GET = b"GET /a HTTP/1.1\r\nhost: weir\r\n"
_POST = b"POST /a HTTP/1.1\r\nhost: weir\r\n"


class _Connection(Recorded):
    """A transport that may be told to read no further for a while."""

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def _connected(app: Any, read: Callable[[BoundedProtocol], Any]) -> bytes:
    """Return what a connection sends that an application answers, and that something is read from."""
    config = uvicorn.Config(app, log_config=None, lifespan="off", date_header=False, server_header=False)
    config.load()
    recorded = _Connection()
    protocol = BoundedProtocol(config, ServerState(), {})
    protocol.connection_made(recorded)
    await read(protocol)
    for _ in range(10):
        await asyncio.sleep(0)
    protocol.connection_lost(None)
    return b"".join(one if isinstance(one, bytes) else b"<closed>" for one in recorded.sent)


async def _by_messages(scope: Any, receive: Any, send: Any) -> None:
    message = await receive()
    assert message["body"] in (b"", b"{}")
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": b"{}"})


async def _at_once(scope: Any, receive: Any, send: Any) -> None:
    message = await receive()
    assert message["body"] in (b"", b"{}")
    if not scope[AT_ONCE](200, _HEADERS, b"{}"):
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await send({"type": "http.response.body", "body": b"{}"})
    # Who asks whether the client is there learns that the response is complete.
    assert (await receive())["type"] == "http.disconnect"


@pytest.mark.parametrize(
    "requests",
    [
        [_GET + b"\r\n"],
        [_POST + b"content-length: 2\r\n\r\n{}"],
        [_POST + b"content-length: 2\r\nexpect: 100-continue\r\n\r\n", b"{}"],
        [_POST + b"content-length: 2\r\nconnection: close\r\n\r\n{}"],
        [b"HEAD /a HTTP/1.1\r\nhost: weir\r\n\r\n"],
        [b"GET /a HTTP/1.0\r\n\r\n"],
        [_GET + b"\r\n" + _GET + b"\r\n" + _POST + b"content-length: 2\r\n\r\n{}"],
        [_GET, b"\r\n", _GET[:10], _GET[10:] + b"\r\n"],
    ],
    ids=["get", "post", "continue", "close", "head", "1.0", "pipelined", "pieces"],
)
def test_a_whole_response_is_what_its_messages_would_be(requests: list[bytes]) -> None:
    async def read(protocol: BoundedProtocol) -> None:
        for one in requests:
            protocol.data_received(one)
            for _ in range(5):
                await asyncio.sleep(0)

    told = [asyncio.run(_connected(app, read)) for app in (_by_messages, _at_once)]
    assert told[0] == told[1]
    assert b" 200 OK" in told[0]


@pytest.mark.parametrize("begun", [_GET, b"\r\n", _GET + b"\r\n" + _GET[:5]])
def test_a_head_that_does_not_end_ends_the_connection(begun: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weir.service.protocol, "_SECONDS_FOR_HEAD", 0.05)

    async def read(protocol: BoundedProtocol) -> None:
        protocol.data_received(_GET + b"\r\n")
        await asyncio.sleep(0.1)
        assert not protocol.transport.is_closing()  # a whole one may be followed by nothing for long
        protocol.data_received(begun)
        await asyncio.sleep(0.1)
        assert protocol.transport.is_closing()

    asyncio.run(_connected(_at_once, read))
