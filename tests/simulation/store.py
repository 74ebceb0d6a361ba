"""An object store in memory whose every operation is a place where others run and things go wrong.

An operation takes simulated time on its way to the store, happens at one instant, and its answer takes
time on its way back. What may go wrong is what S3 lets go wrong: a request is lost, an answer is lost,
a client that lost an answer tries again and finds its own object, a request lands long after its
sender has given up. Reads and listings show what is there; a listing of several pages is not cut at one
instant, so what changes while it is made may be missing or not.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Protocol, TypeVar

import greenlet
from tests.simulation.primitives import instant
from tests.simulation.process_wide import own_engine
from tests.simulation.scheduler import Process, Scheduler, Task

from weir.engine.context import EngineContext
from weir.errors import ObjectExistsError, ObjectNotFoundError, PreconditionError, StorageError
from weir.storage.interface import Bytes, ObjectMeta, ObjectStore
from weir.storage.paths import check_path, check_prefix

__all__ = ["FaultRates", "Observer", "SimulatedStore"]

T = TypeVar("T")
_MODIFIED_RESOLUTION = 1.0


@dataclass(frozen=True, slots=True)
class FaultRates:
    """How likely an operation goes wrong in which way.

    Parameters
    ----------
    lost_request : float
        It is not performed and an error is reported.
    lost_answer : float
        It is performed and an error is reported.
    repeated : float
        A conditional write is performed, and its client, having lost the answer, repeats it.
    delayed : float
        A write is performed some time after the error is reported.
    crash : float
        The process dies before or after it.
    slow : float
        It takes ten to a thousand times as long.
    sleep : float
        The process that writes stands still for minutes or hours, if it is one that may.
    wrong_clock : float
        The wall clock of the process is set wrong by seconds to days, forwards or backwards.
    untidy_listing : float
        A listing has objects twice or in another order.
    latency : float
        Mean seconds on the way there.
    """

    lost_request: float = 0.0
    lost_answer: float = 0.0
    repeated: float = 0.0
    delayed: float = 0.0
    crash: float = 0.0
    slow: float = 0.0
    sleep: float = 0.0
    wrong_clock: float = 0.0
    untidy_listing: float = 0.0
    latency: float = 0.005
    lost_reads: float = field(init=False, repr=False)
    """How likely a read goes wrong in any way."""

    def __post_init__(self) -> None:
        """Add up once what every read asks for."""
        object.__setattr__(self, "lost_reads", self.crash + self.lost_request + self.lost_answer)


class Observer(Protocol):
    """Is told what happens to the store, at the instant when it does."""

    def written(self, path: str, data: bytes, by: Process) -> None:
        """An object has been written."""

    def deleted(self, path: str, by: Process) -> None:
        """An object that existed has been deleted."""


class _Object:
    __slots__ = ("_meta", "data", "modified", "path", "version")

    def __init__(self, path: str, data: bytes, version: str, modified: float) -> None:
        self.path = path
        self.data = data
        self.version = version
        self.modified = modified
        self._meta: ObjectMeta | None = None

    @property
    def meta(self) -> ObjectMeta:
        if self._meta is None:
            rounded = self.modified - self.modified % _MODIFIED_RESOLUTION
            self._meta = ObjectMeta(self.path, len(self.data), instant(rounded), self.version)
        return self._meta


class SimulatedStore(ObjectStore):
    """The objects of one table.

    Parameters
    ----------
    scheduler : Scheduler
        Runs everything.
    rates : FaultRates
        What goes wrong.
    local : bool
        What ``is_local`` says: whether Weir reads entries one by one or several at a time.
    fsync : bool
        Whether the power may be cut, so that what the library has written has to be synced.
    """

    def __init__(self, scheduler: Scheduler, rates: FaultRates, *, local: bool, fsync: bool = False) -> None:
        self.scheduler = scheduler
        self._draw = scheduler.random.random
        self.rates = rates
        self.observer: Observer | None = None
        self.objects: dict[str, _Object] = {}
        self.operations = 0
        self.in_flight = 0
        """Delayed writes that have not landed yet."""
        self.fsync = fsync
        self.unsynced: set[str] = set()
        """What the library has written, and a power cut may take away."""
        self._power_cuts = 0
        self.trace: list[str] = []
        self._below: dict[str, dict[str, _Object]] = {}
        """The objects in every directory, at any depth."""
        self._directories_in: dict[str, set[str]] = {}
        """The names of the directories right below every directory."""
        self._names_changed: Counter[str] = Counter()
        """How often a name has come to or gone from every directory."""
        self.is_local = local
        self._versions = 0
        self._network = Process("network", may_crash=False)

    @property
    def waits_for_disk(self) -> bool:
        """Whether what the library writes has to be synced."""
        return self.is_local and self.fsync

    @property
    def engine(self) -> EngineContext:
        """The engine of the process that asks: each has its own."""
        task = self.scheduler.task
        known = None if task is None else task.process.memory.get(own_engine)
        return own_engine() if known is None else known

    @property
    def trace_hash(self) -> str:
        """Equal for two runs exactly if the same happened in the same order."""
        return hashlib.blake2b("\n".join(self.trace).encode(), digest_size=16).hexdigest()

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        task = self.scheduler.task
        self.trace.append(f"{self.scheduler.steps} {task.name if task else '-'} {text}")

    def names_below(self, directory: str) -> Iterable[str]:
        """Return the paths in a directory, at no time at all."""
        return self._below.get(directory, ())

    def peek(self, path: str) -> bytes | None:
        """Return an object, at no time at all."""
        found = self.objects.get(path)
        return None if found is None else found.data

    def damage(self, path: str) -> int:
        """Flip a bit of an object, which nobody is told; return which."""
        stored = self.objects[path]
        bit = self.scheduler.random.randrange(len(stored.data) * 8)
        damaged = bytearray(stored.data)
        damaged[bit // 8] ^= 1 << bit % 8
        stored.data = bytes(damaged)
        self.note(f"bit {bit} of {path} is flipped")
        return bit

    # The interface

    # Not asked for by calls: they are asked for all the time.
    uri = "sim://table"
    is_local = False

    @property
    def storage_options(self) -> Mapping[str, str]:
        return {}

    def get(self, path: str) -> Bytes:
        return self._read("get", _checked(path), self._content)

    def get_range(self, path: str, start: int, length: int) -> Bytes:
        data = bytes(self.get(path))
        begin = max(len(data) + start, 0) if start < 0 else start
        return data[begin : begin + length]

    def head(self, path: str) -> ObjectMeta | None:
        return self._read("head", _checked(path), self._meta)

    def stamp(self, *paths: str) -> Hashable | None:
        # As a file system tells it: of a directory the names right in it; nothing at times, after a change
        # just now.
        if not self.is_local or self._draw() < 0.5:
            return None
        if not all(path in self.objects or self._below.get(path) for path in paths):
            return None
        return tuple(
            self.objects[path].version if path in self.objects else self._names_changed[path]
            for path in paths
        )

    def list(self, prefix: str) -> Sequence[ObjectMeta]:
        directory = _checked_prefix(prefix)
        first = self._read("list", directory, self._seen)
        last = self._read("list-end", directory, self._seen)
        random = self.scheduler.random
        entries = []
        for path in sorted({*first, *last}):
            before, after = first.get(path), last.get(path)
            if before is None or after is None:
                if random.random() < 0.5:
                    entries.append(before or after)
            else:
                entries.append(after)
        listed = [entry.meta for entry in entries if entry is not None]
        if listed and self.rates.untidy_listing and random.random() < self.rates.untidy_listing:
            listed += random.sample(listed, min(2, len(listed)))
            random.shuffle(listed)
        return listed

    def first_of(self, prefix: str) -> str | None:
        """Return the path that a listing begins with: the newest manifest of a Lance data set."""
        return self._read("list", prefix, self._first)

    def list_directories(self, prefix: str) -> Sequence[str]:
        return self._read("list_directories", _checked_prefix(prefix), self._directories)

    def put(self, path: str, data: Bytes | Sequence[Bytes], *, syncs: bool = True) -> None:
        content = _joined(data)
        by = self._task().process
        self._write("put", _checked(path), lambda: self._store(path, content, by, syncs=syncs))

    def put_if_absent(self, path: str, data: Bytes | Sequence[Bytes], *, syncs: bool = True) -> None:
        content = _joined(data)
        by = self._task().process

        def effect() -> None:
            if path in self.objects:
                raise ObjectExistsError("the object exists", where=f"{self.uri}/{path}")
            self._store(path, content, by, syncs=syncs)

        def repeat() -> None:
            raise ObjectExistsError("the object exists", where=f"{self.uri}/{path}")

        self._write("put_if_absent", _checked(path), effect, repeat)

    def compare_and_swap(self, path: str, data: Bytes | Sequence[Bytes], expected: str) -> str:
        content = _joined(data)
        by = self._task().process

        def effect() -> str:
            found = self.objects.get(path)
            if found is None or found.version != expected:
                raise PreconditionError("the object has changed", where=f"{self.uri}/{path}")
            return self._store(path, content, by)

        def repeat() -> str:
            raise PreconditionError("the object has changed", where=f"{self.uri}/{path}")

        return self._write("compare_and_swap", _checked(path), effect, repeat)

    def copy(self, source: str, target: str) -> None:
        content = bytes(self.get(source))
        by = self._task().process
        self._write("copy", _checked(target), lambda: self._store(target, content, by))

    def move(self, source: str, target: str) -> None:
        """Give an object another name, if it is there: what Weir asks the file system for."""
        by = self._task().process

        def effect() -> None:
            found = self.objects.get(source)
            if found is not None:
                self._store(target, found.data, by)
                self._drop(source)

        self._write("move", _checked(source), effect)

    def delete(self, paths: Iterable[str]) -> None:
        by = self._task().process
        for path in paths:
            self._write("delete", _checked(path), partial(self._remove, path, by))

    def sync(self, prefix: str) -> None:
        directory = _checked_prefix(prefix)
        if self.fsync:
            self.sync_all(path for path in self.unsynced if path.startswith(f"{directory}/"))

    def sync_all(self, paths: Iterable[str]) -> None:
        """Make objects durable that the library has written."""
        chosen = self.unsynced.intersection(paths)
        if chosen:
            self._write("sync", min(chosen), lambda: self.unsynced.difference_update(chosen))

    def power_fails(self) -> None:
        """Forget what was on its way, and what was not synced is not to be synced any more."""
        self._power_cuts += 1
        self.unsynced.clear()

    def cut_short(self, path: str) -> None:
        """Leave an object empty that nobody has synced."""
        self.objects[path].data = b""
        self.objects[path]._meta = None
        self.note(f"{path} is empty")

    def lose(self, path: str) -> None:
        """Take away an object that nobody has synced."""
        self._drop(path)
        self.note(f"{path} is lost")

    # What happens

    def _content(self, path: str) -> bytes:
        found = self.objects.get(path)
        if found is None:
            raise ObjectNotFoundError("there is no such object", where=f"{self.uri}/{path}")
        return found.data

    def _meta(self, path: str) -> ObjectMeta | None:
        found = self.objects.get(path)
        return None if found is None else found.meta

    def _seen(self, directory: str) -> dict[str, _Object]:
        return dict(self._below.get(directory, {}))

    def _first(self, directory: str) -> str | None:
        return min(self._below.get(directory, ()), default=None)

    def _directories(self, directory: str) -> Sequence[str]:
        return sorted(self._directories_in.get(directory, ()))

    def _store(self, path: str, data: bytes, by: Process, *, syncs: bool = True) -> str:
        if self.fsync:
            (self.unsynced.discard if syncs else self.unsynced.add)(path)
        self._versions += 1
        version = str(self._versions)
        if path not in self.objects:
            self._names_changed[path.rpartition("/")[0]] += 1
        self.objects[path] = stored = _Object(path, data, version, self.scheduler.now)
        for directory in _directories(path):
            if directory not in self._below:
                self._below[directory] = {}
            if directory and not self._below[directory]:
                parent, _, name = directory.rpartition("/")
                self._directories_in.setdefault(parent, set()).add(name)
                self._names_changed[parent] += 1
            self._below[directory][path] = stored
        if self.observer is not None:
            self.observer.written(path, data, by)
        return version

    def _remove(self, path: str, by: Process) -> None:
        if self._drop(path) and self.observer is not None:
            self.observer.deleted(path, by)

    def _drop(self, path: str) -> bool:
        if self.objects.pop(path, None) is None:
            return False
        self._names_changed[path.rpartition("/")[0]] += 1
        self.unsynced.discard(path)
        for directory in _directories(path):
            del self._below[directory][path]
            if directory and not self._below[directory]:
                parent, _, name = directory.rpartition("/")
                self._directories_in[parent].discard(name)
                self._names_changed[parent] += 1
        return True

    def _read(self, name: str, path: str, effect: Callable[[str], T]) -> T:
        task = self._task()
        self._travel()
        rates = self.rates
        if rates.lost_reads:
            draw = self._draw()
            if draw < rates.lost_reads:
                if draw < rates.crash:
                    self._crash(task, name, path or ".")
                raise self._fault(task, name, path or ".", "lost")
        self.operations += 1
        try:
            result = effect(path)
        except ObjectNotFoundError:
            self.note(f"{name} {path} ObjectNotFoundError")
            raise
        self.note(f"{name} {path or '.'}")
        return result

    def _write(
        self, name: str, path: str, effect: Callable[[], T], repeat: Callable[[], T] | None = None
    ) -> T:
        task = self._task()
        self._travel()
        random, rates = self.scheduler.random, self.rates
        if rates.sleep and task.process.may_sleep and random.random() < rates.sleep:
            self.note(f"{name} {path} sleeps")
            self.scheduler.sleep(10 ** random.uniform(1, math.log10(task.process.longest_sleep)))
        if rates.wrong_clock and random.random() < rates.wrong_clock:
            task.process.skew = random.choice([-1, 1]) * 10 ** random.uniform(0, 5)
            task.process.has_wrong_clock = True
            self.note(f"the clock of {task.process.name} is wrong by {task.process.skew:.0f} seconds")
        draw = random.random()
        if draw < rates.crash:
            if random.random() < 0.5:
                self._happen(name, path, effect)
            self._crash(task, name, path)
        draw -= rates.crash
        if draw < rates.lost_request:
            raise self._fault(task, name, path, "request lost")
        draw -= rates.lost_request
        if draw < rates.lost_answer:
            self._happen(name, path, effect)
            raise self._fault(task, name, path, "answer lost")
        draw -= rates.lost_answer
        if draw < rates.delayed:
            self._land_later(name, path, effect)
            raise self._fault(task, name, path, "delayed")
        draw -= rates.delayed
        if draw < rates.repeated and repeat is not None:
            self._happen(name, path, effect)
            self._travel()
            self.note(f"{name} {path} repeated")
            return repeat()
        result = self._happen(name, path, effect)
        if random.random() < 0.2:
            self._travel()
        return result

    def _happen(self, name: str, path: str, effect: Callable[[], T]) -> T:
        self.operations += 1
        try:
            result = effect()
        except StorageError as error:
            self.note(f"{name} {path} {type(error).__name__}")
            raise
        self.note(f"{name} {path}")
        return result

    def _land_later(self, name: str, path: str, effect: Callable[[], object]) -> None:
        self.in_flight += 1
        power_cuts = self._power_cuts

        def land() -> None:
            self.in_flight -= 1
            if power_cuts != self._power_cuts:
                return
            try:
                self._happen(f"late {name}", path, effect)
            except StorageError:
                return

        random = self.scheduler.random
        self.scheduler.spawn(self._network, "late", land, delay=10 ** random.uniform(-3, 1))

    def _travel(self) -> None:
        rates, draw = self.rates, self._draw
        seconds = -math.log(1.0 - draw()) * rates.latency
        if rates.slow and draw() < rates.slow:
            seconds *= 10 ** self.scheduler.random.uniform(1, 3)
        self.scheduler.sleep(seconds)

    def _fault(self, task: Task, name: str, path: str, what: str) -> StorageError:
        task.process.faults += 1
        self.note(f"{name} {path} {what}")
        return StorageError(f"simulated: {what}", where=f"{self.uri}/{path}")

    def _crash(self, task: Task, name: str, path: str) -> None:
        if task.process.may_crash:
            self.note(f"{name} {path} crash")
            self.scheduler.crash(task.process)

    def _task(self) -> Task:
        task = self.scheduler.task
        if task is None:
            raise RuntimeError("the simulated store is for simulated tasks")
        if not task.process.alive:
            raise greenlet.GreenletExit
        return task


_checked = lru_cache(maxsize=4096)(check_path)
_checked_prefix = lru_cache(maxsize=4096)(check_prefix)


@lru_cache(maxsize=4096)
def _directories(path: str) -> tuple[str, ...]:
    """Return every directory an object is in, at any depth, the root too."""
    parts = path.split("/")
    return tuple("/".join(parts[:depth]) for depth in range(len(parts)))


def _joined(data: Bytes | Sequence[Bytes]) -> bytes:
    if isinstance(data, (list, tuple)):
        return b"".join(bytes(part) for part in data)
    return bytes(data)  # type: ignore[arg-type]
