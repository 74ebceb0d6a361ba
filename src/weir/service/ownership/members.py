"""The processes that serve a root: each announces every two seconds that it is alive, and its address.

Each has one object, ``processes/{id}.json``. The id is also the name under which a process holds its leases.
The root is still the one being served as long as the object ``root`` is the one found at the start: an
unmounted disk leaves an empty directory, and writes to it would be lost. A backup that is put in the place of
the root may look the same, but has an earlier announcement of this process, or none.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

from weir.errors import DiskFullError, ObjectExistsError, ObjectNotFoundError, WeirError
from weir.storage.interface import ObjectStore

__all__ = ["Member", "Members"]

_DIRECTORY = "processes"
_SECONDS_BETWEEN = 2.0
_SECONDS_ALIVE = 10.0
_SECONDS_KNOWN = 1.0
_SECONDS_FORGOTTEN = 3600.0
_SECONDS_SILENT = 5.0
_ROOT = "root"

_log = logging.getLogger("weir.service.members")


@dataclass(frozen=True, slots=True)
class Member:
    """A process that serves the root.

    Parameters
    ----------
    id : str
        Its unique id.
    url : str
        Its URL.
    host : str
        Its machine.
    process_id : int
        Its process id there.
    """

    id: str
    url: str
    host: str
    process_id: int


class Members:
    """The processes that serve a root, including this one.

    Parameters
    ----------
    store : ObjectStore
        The root.
    url : str
        The URL of this process.
    id : str
        Its id.
    """

    def __init__(self, store: ObjectStore, url: str, id: str) -> None:
        self._store = store
        self.here = Member(id, url, socket.gethostname(), os.getpid())
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="weir-members", daemon=True)
        self._known: tuple[float, tuple[Member, ...]] = (0.0, ())
        self._read: dict[str, tuple[str, Member]] = {}
        self._suspects: dict[str, float] = {}
        self._lock = threading.Lock()
        self._root: str | None = None
        self._said: frozenset[bytes] = frozenset()
        self._is_elsewhere = False
        self._said_at = 0.0

    @staticmethod
    def new_id() -> str:
        """Return a unique process id."""
        return uuid4().hex

    def start(self) -> None:
        """Announce this process from now on.

        Raises
        ------
        StorageError
            If the announcement cannot be stored.
        """
        with suppress(ObjectExistsError):
            self._store.put_if_absent(_ROOT, uuid4().hex.encode())
        self._root = self._root_now()
        self._say()
        self._thread.start()

    def stop(self) -> None:
        """Announce that it is about to end."""
        self._stopping.set()
        self._thread.join()
        try:
            self._store.delete([_path(self.here.id)])
        except WeirError:
            _log.warning("a process could not be taken from the list")

    def is_alive(self) -> bool:
        """Whether the announcements still succeed."""
        return self._thread.is_alive()

    @property
    def is_elsewhere(self) -> bool:
        """Whether the storage is not the one found at the start, as of a few seconds ago."""
        return self._is_elsewhere

    def trouble(self) -> str:
        """Return why this process cannot work with the storage; empty if it can."""
        if self._is_elsewhere:
            return "the storage is not the one that was served"
        if time.monotonic() - self._said_at > _SECONDS_BETWEEN + _SECONDS_SILENT:
            return "the storage does not answer"
        return ""

    def _root_now(self) -> str | None:
        meta = self._store.head(_ROOT)
        return None if meta is None else meta.version

    def live(self) -> tuple[Member, ...]:
        """Return the live processes, as of at most a second ago, always including this one."""
        with self._lock:
            seen, members = self._known
            if time.monotonic() - seen > _SECONDS_KNOWN:
                try:
                    members = self._look()
                except WeirError:
                    members = (self.here,)
                self._known = (time.monotonic(), members)
            return members

    def suspect(self, member: Member) -> None:
        """Treat an unreachable process as gone for a while."""
        with self._lock:
            self._suspects[member.id] = time.monotonic() + _SECONDS_ALIVE
            self._known = (0.0, ())

    def _look(self) -> tuple[Member, ...]:
        listed = [*self._store.list(_DIRECTORY)]
        # By the clock of the storage where this process has just said that it lives: its own may be wrong.
        said = [meta.last_modified for meta in listed if meta.path == _path(self.here.id)]
        now = said[0].timestamp() if said else time.time()
        found = [self.here]
        for meta in listed:
            age = now - meta.last_modified.timestamp()
            id = meta.path.removeprefix(f"{_DIRECTORY}/").removesuffix(".json")
            if id == self.here.id:
                continue
            if age > _SECONDS_FORGOTTEN:
                self._store.delete([meta.path])
            if age > _SECONDS_ALIVE or self._suspects.get(id, 0.0) > time.monotonic():
                continue
            member = self._member(id, meta.path)
            if member is not None and not self._is_gone(member):
                found.append(member)
        return tuple(sorted(found, key=lambda member: member.id))

    def _member(self, id: str, path: str) -> Member | None:
        known = self._read.get(id)
        if known is not None:
            return known[1]
        try:
            stored = json.loads(bytes(memoryview(self._store.get(path))))
            member = Member(id, str(stored["url"]), str(stored["host"]), int(stored["process_id"]))
        except (ObjectNotFoundError, KeyError, TypeError, ValueError):
            return None
        self._read[id] = (path, member)
        return member

    def _is_gone(self, member: Member) -> bool:
        """Whether it was a process of this machine that no longer exists."""
        if member.host != self.here.host:
            return False
        try:
            os.kill(member.process_id, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False

    def _say(self) -> None:
        here = self.here
        self._is_elsewhere = self._root_now() != self._root or not self._is_as_left()
        if not self._is_elsewhere:
            fields = {"url": here.url, "host": here.host, "process_id": here.process_id, "said": uuid4().hex}
            content = json.dumps(fields).encode()
            # Of one that fails it is not known whether it was stored.
            self._said |= {content}
            self._store.put(_path(here.id), content)
            self._said = frozenset((content,))
        self._said_at = time.monotonic()

    def _is_as_left(self) -> bool:
        """Whether the last announcement is there: a backup has an earlier one, or none.

        The rest of it may look the same: a copy may keep all times, and get the numbers of the files that it
        replaces, and an object store gives equal contents one version.
        """
        try:
            return not self._said or bytes(self._store.get(_path(self.here.id))) in self._said
        except ObjectNotFoundError:
            # Others forget who has been silent for long.
            return time.monotonic() - self._said_at > _SECONDS_FORGOTTEN / 2

    def _run(self) -> None:
        while not self._stopping.wait(_SECONDS_BETWEEN):
            try:
                self._say()
            except DiskFullError:
                # It can be read still, and that is what readiness is about; writes are told.
                self._said_at = time.monotonic()
            except WeirError as error:
                _log.warning("a process could not say that it lives", exc_info=error)


def _path(id: str) -> str:
    return f"{_DIRECTORY}/{id}.json"
