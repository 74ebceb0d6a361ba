"""What stands in for ``threading``, ``time``, thread pools and randomness while the simulation runs.

Each does what its namesake does for tasks instead of threads, on simulated time and from the seed. Only
what Weir uses is here: whatever else is asked for fails at once.
"""

from __future__ import annotations

import datetime as real_datetime
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from tests.simulation.scheduler import Process, Task, current_scheduler, is_simulating

__all__ = [
    "SimulatedDatetime",
    "SimulatedExecutor",
    "SimulatedRandom",
    "SimulatedSecrets",
    "SimulatedThreading",
    "SimulatedTime",
    "simulated_uuid4",
]

T = TypeVar("T")
_EPOCH = 1_800_000_000.0
_BETWEEN_BOOTS = 10_000.0
_HAND_OVER_CHANCE = 0.15


class _Lock:
    """A lock that a task may take again while it holds it, as the lock of a condition may be."""

    def __init__(self) -> None:
        self._owner: Task | None = None
        self._depth = 0
        self._waiting: deque[Task] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = current_scheduler()
        task = scheduler.task
        assert task is not None
        if not task.process.alive:
            return True
        if self._owner is task:
            self._depth += 1
            return True
        if scheduler.random.random() < _HAND_OVER_CHANCE:
            scheduler.hand_over()
        while self._owner is not None:
            if not blocking:
                return False
            self._waiting.append(task)
            if not scheduler.park(None if timeout < 0 else timeout):
                self._waiting.remove(task)
                return False
        self._owner, self._depth = task, 1
        return True

    def release(self) -> None:
        scheduler = current_scheduler()
        task = scheduler.task
        if task is None or not task.process.alive:
            return
        assert self._owner is task, "released by a task that does not hold it"
        self._depth -= 1
        if not self._depth:
            self._owner = None
            if self._waiting:
                scheduler.wake(self._waiting.popleft())

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Condition:
    def __init__(self, lock: _Lock | None = None) -> None:
        self._lock = lock or _Lock()
        self._waiting: list[Task] = []

    def acquire(self) -> bool:
        return self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        scheduler = current_scheduler()
        task = scheduler.task
        assert task is not None
        assert self._lock._owner is task or not task.process.alive
        depth, self._lock._depth = self._lock._depth, 1
        self._waiting.append(task)
        self._lock.release()
        notified = scheduler.park(timeout)
        if not notified:
            self._waiting.remove(task)
        self._lock.acquire()
        self._lock._depth = depth
        return notified

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        end = None if timeout is None else current_scheduler().now + timeout
        while not (result := predicate()):
            left = None if end is None else end - current_scheduler().now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        scheduler = current_scheduler()
        if scheduler.task is None or not scheduler.task.process.alive:
            return
        chosen, self._waiting = self._waiting[:n], self._waiting[n:]
        for task in chosen:
            scheduler.wake(task)

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class _Event:
    def __init__(self) -> None:
        self._set = False
        self._changed = _Condition()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        with self._changed:
            self._set = True
            self._changed.notify_all()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._set, timeout)
        return self._set


class _Semaphore:
    def __init__(self, value: int = 1) -> None:
        self._value = value
        self._changed = _Condition()

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        with self._changed:
            if not self._value and not blocking:
                return False
            if not self._changed.wait_for(lambda: self._value > 0, timeout):
                return False
            self._value -= 1
            return True

    def release(self) -> None:
        with self._changed:
            self._value += 1
            self._changed.notify()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Thread:
    def __init__(
        self,
        group: None = None,
        target: Callable[..., Any] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name = name or "thread"
        self.daemon = bool(daemon)
        self._target, self._args, self._kwargs = target, tuple(args), kwargs or {}
        self._task: Task | None = None

    def run(self) -> None:
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    def start(self) -> None:
        self._task = current_scheduler().spawn(_own_process(), self.name, self.run)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done

    def join(self, timeout: float | None = None) -> None:
        scheduler = current_scheduler()
        end = None if timeout is None else scheduler.now + timeout
        assert self._task is not None
        while not self._task.done and (end is None or scheduler.now < end):
            assert scheduler.task is not None
            self._task.waiters.append(scheduler.task)
            scheduler.park(None if end is None else end - scheduler.now)


class SimulatedThreading:
    """Stands in for the module ``threading``."""

    Lock = _Lock
    RLock = _Lock
    Condition = _Condition
    Event = _Event
    Semaphore = _Semaphore
    BoundedSemaphore = _Semaphore
    Thread = _Thread

    @staticmethod
    def current_thread() -> Task | None:
        return current_scheduler().task

    @staticmethod
    def get_ident() -> int:
        return id(current_scheduler().task)


def _own_process() -> Process:
    task = current_scheduler().task
    assert task is not None
    return task.process


class SimulatedTime:
    """Stands in for the module ``time``; every process has a wall clock of its own."""

    @staticmethod
    def monotonic() -> float:
        scheduler = current_scheduler()
        return scheduler.now + (scheduler.task.process.machine * _BETWEEN_BOOTS if scheduler.task else 0.0)

    perf_counter = monotonic

    @staticmethod
    def monotonic_ns() -> int:
        return int(SimulatedTime.monotonic() * 1e9)

    @staticmethod
    def time() -> float:
        scheduler = current_scheduler()
        return _EPOCH + scheduler.now + (scheduler.task.process.skew if scheduler.task else 0.0)

    @staticmethod
    def time_ns() -> int:
        return int(SimulatedTime.time() * 1e9)

    @staticmethod
    def sleep(seconds: float) -> None:
        current_scheduler().sleep(seconds)


class _AnyDatetime(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, real_datetime.datetime)


class SimulatedDatetime(real_datetime.datetime, metaclass=_AnyDatetime):
    """Stands in for the class ``datetime.datetime``."""

    @classmethod
    def now(cls, tz: real_datetime.tzinfo | None = None) -> real_datetime.datetime:  # type: ignore[override]
        if not is_simulating():
            return real_datetime.datetime.now(tz)
        return real_datetime.datetime.fromtimestamp(SimulatedTime.time(), tz)

    @classmethod
    def utcnow(cls) -> real_datetime.datetime:  # type: ignore[override]
        return cls.now(real_datetime.UTC).replace(tzinfo=None)


def uptime_to_time(uptime: float, process: Process) -> float:
    """Return the simulated time at which the machine of a process has an uptime."""
    return uptime - process.machine * _BETWEEN_BOOTS


def instant(seconds: float) -> real_datetime.datetime:
    """Return the true wall-clock time at some simulated time."""
    return real_datetime.datetime.fromtimestamp(_EPOCH + seconds, real_datetime.UTC)


class SimulatedSecrets:
    """Stands in for the module ``secrets``."""

    @staticmethod
    def token_bytes(nbytes: int = 32) -> bytes:
        return current_scheduler().random.randbytes(nbytes)

    @staticmethod
    def token_hex(nbytes: int = 32) -> str:
        return current_scheduler().random.randbytes(nbytes).hex()


class SimulatedRandom:
    """Stands in for the module ``random``."""

    @staticmethod
    def random() -> float:
        return current_scheduler().random.random()

    @staticmethod
    def uniform(low: float, high: float) -> float:
        return current_scheduler().random.uniform(low, high)


def simulated_uuid4() -> uuid.UUID:
    """Stand in for ``uuid.uuid4``."""
    return uuid.UUID(bytes=current_scheduler().random.randbytes(16), version=4)


class _Future(Future[T]):
    """A future whose waiters are tasks."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = _Condition()

    def result(self, timeout: float | None = None) -> T:
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        if not self.done():
            with self._changed:
                self._changed.wait_for(self.done, timeout)

    def settled(self) -> None:
        with self._changed:
            self._changed.notify_all()


class SimulatedExecutor(Executor):
    """Stands in for ``ThreadPoolExecutor``: every call is a task of the process that submits it."""

    def __init__(self, max_workers: int | None = None, thread_name_prefix: str = "", **_: Any) -> None:
        self._free = _Semaphore(max_workers or 4)
        self._name = thread_name_prefix or "pool"
        self._futures: list[_Future[Any]] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: _Future[T] = _Future()
        self._futures.append(future)

        def run() -> None:
            with self._free:
                if not future.set_running_or_notify_cancel():
                    return
                try:
                    result = fn(*args, **kwargs)
                except Exception as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)
                future.settled()

        current_scheduler().spawn(_own_process(), self._name, run)
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        futures = [self.submit(fn, *arguments) for arguments in zip(*iterables, strict=False)]
        return (future.result() for future in futures)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            for future in self._futures:
                future.cancel()
        if wait:
            for future in self._futures:
                future._wait(None)
