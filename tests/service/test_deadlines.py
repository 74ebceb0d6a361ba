"""The time that a request has, and what it does not end."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from weir.service.deadlines import Deadlines, shielded

_LONG = 30.0


def test_what_takes_too_long_is_cancelled_and_what_does_not_is_not() -> None:
    deadlines = Deadlines(0.05)
    done: list[str] = []

    async def request(name: str, seconds: float) -> bool:
        with deadlines.one() as deadline:
            await asyncio.sleep(seconds)
            done.append(name)
        return deadline.cancelled

    async def several() -> list[bool]:
        long = asyncio.create_task(request("long", _LONG))
        short = asyncio.create_task(request("short", 0.0))
        await asyncio.sleep(0.03)
        # It is due after the first one, when the timer has to be set again.
        later = asyncio.create_task(request("later", _LONG))
        return [await one for one in (long, short, later)]

    assert asyncio.run(several()) == [True, False, True]
    assert done == ["short"]
    # The timer of a loop that has ended is of no use to another one.
    assert asyncio.run(asyncio.wait_for(request("again", _LONG), _LONG)) is True


def test_a_part_that_goes_on_to_its_end_still_gives_the_answer() -> None:
    deadlines = Deadlines(0.02)

    async def request(*, waits_after: bool) -> tuple[str, bool]:
        answer = "none"
        with deadlines.one() as deadline:
            with shielded(), shielded():
                await asyncio.sleep(0.1)
                answer = "written"
            assert deadline.is_over
            if waits_after:
                await asyncio.sleep(_LONG)
                answer = "waited"
        await asyncio.sleep(0)  # nothing is left that would cancel what follows
        return answer, deadline.cancelled

    assert asyncio.run(request(waits_after=False)) == ("written", False)
    assert asyncio.run(request(waits_after=True)) == ("written", True)


def test_who_cancels_a_request_for_another_reason_is_told() -> None:
    deadlines = Deadlines(0.01)

    async def request() -> None:
        with deadlines.one():
            try:
                await asyncio.sleep(_LONG)
            finally:
                # It is due, and is cancelled from outside before it has ended.
                task = asyncio.current_task()
                assert task is not None
                task.cancel()

    async def cancelled() -> None:
        task = asyncio.create_task(request())
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())


def test_an_error_of_a_request_that_was_due_is_its_own() -> None:
    deadlines = Deadlines(0.01)

    async def request() -> None:
        with deadlines.one():
            try:
                await asyncio.sleep(_LONG)
            except asyncio.CancelledError:
                raise ValueError("the answer") from None

    with pytest.raises(ValueError, match="the answer"):
        asyncio.run(request())


def test_without_a_deadline_the_scopes_around_do_not_end_it_either() -> None:
    done: list[str] = []

    async def stream() -> None:
        with anyio.move_on_after(0.02):
            with shielded():
                await asyncio.sleep(0.06)
                done.append("shielded")
            await asyncio.sleep(_LONG)
            done.append("never")

    asyncio.run(stream())
    assert done == ["shielded"]


def test_a_task_that_a_request_has_begun_is_not_shielded_by_it() -> None:
    deadlines = Deadlines(0.02)
    done: list[str] = []

    async def work() -> None:
        with shielded():
            await asyncio.sleep(0.06)
            done.append("work")

    async def request() -> bool:
        with deadlines.one() as deadline:
            task = asyncio.create_task(work())
            await asyncio.sleep(_LONG)
        await task
        return deadline.cancelled

    assert asyncio.run(request()) is True
    assert done == ["work"]
