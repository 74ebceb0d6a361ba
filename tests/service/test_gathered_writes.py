"""Which writes to a namespace are made together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from weir.namespaces import Namespace, Write, Written
from weir.service.write_groups import WriteGroups

_PLACE = cast(Namespace, "docs")


class Recorded:
    """Makes writes, and keeps how many were made together."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.groups = WriteGroups(self._write_many)

    async def _write_many(self, namespace: Namespace, writes: Sequence[Any]) -> Sequence[Written]:
        self.sizes.append(len(writes))
        await asyncio.sleep(0.01)
        return [Written(upserted=one.deletes[0]) for one in writes]

    async def write(self, number: int, steps: int = 0) -> int:
        """Make a write after so many steps of the event loop; return what it was told."""
        for _ in range(steps):
            await asyncio.sleep(0)
        return (await self.groups.write(_PLACE, Write(deletes=[number]))).upserted


def test_writes_that_arrive_while_others_are_told_are_made_together() -> None:
    recorded = Recorded()

    async def client(number: int) -> list[int]:
        # The requests of many clients are read one after the other.
        return [await recorded.write(number, number % 3 if turn else 0) for turn in range(4)]

    async def clients() -> list[list[int]]:
        return list(await asyncio.gather(*map(client, range(8))))

    assert asyncio.run(clients()) == [[number] * 4 for number in range(8)]
    assert recorded.sizes == [8, 8, 8, 8]


def test_a_steady_stream_does_not_hold_a_group_up() -> None:
    recorded = Recorded()

    async def clients() -> list[int]:
        return list(await asyncio.gather(*[recorded.write(steps, steps) for steps in range(400)]))

    assert asyncio.run(clients()) == [*range(400)]
    assert max(recorded.sizes) < 400


def test_who_writes_alone_waits_for_nobody() -> None:
    recorded = Recorded()

    async def client() -> list[int]:
        return [await recorded.write(number) for number in range(3)]

    assert asyncio.run(client()) == [0, 1, 2]
    assert recorded.sizes == [1, 1, 1]
