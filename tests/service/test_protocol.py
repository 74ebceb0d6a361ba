"""What a connection sends, and in how many pieces."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from weir.service.protocol import GatheringTransport

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
