"""The owner of a lease: identifies this process, and whether another one is dead.

A process id alone is not sufficient: ids are reused, and differ between containers on one machine. So a
holder also records when its process started, and the boot and machine its id belongs to. On systems that do
not provide this (all but Linux), no holder is ever considered dead, and leases run to their end.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
from dataclasses import dataclass

from weir.format.lease import LeaseOwner

__all__ = ["is_certainly_dead", "new_lease_owner"]

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_DEAD_STATES = frozenset("ZXx")


def new_lease_owner(name: str | None = None, address: str | None = None) -> LeaseOwner:
    """Return an owner in this process: different from every other, or the same one for every ``name``.

    ``address`` is where others reach the process, for those who find its shards held.
    """
    process_id = os.getpid()
    stat = _stat_of(process_id)
    return LeaseOwner(
        host=socket.gethostname(),
        process_id=process_id,
        process_started=None if stat is None else stat.started,
        system=_system(),
        holder_id=secrets.token_hex(16) if name is None else _id_of(name),
        address=address,
    )


def _id_of(name: str) -> str:
    return hashlib.sha256(b"weir lease holder 1 " + name.encode()).hexdigest()[:32]


def is_certainly_dead(holder: LeaseOwner) -> bool:
    """Whether ``holder`` was a process of this very system that is gone, beyond doubt.

    False if that is unknown: another machine, another container, an unsupported system.
    """
    if holder.system is None or holder.process_started is None or holder.system != _system():
        return False
    stat = _stat_of(holder.process_id)
    if stat is None:
        # /proc may hide the processes of other users; signal 0 asks the system itself.
        return not _exists(holder.process_id)
    return stat.started != holder.process_started or stat.is_dead


@dataclass(frozen=True, slots=True)
class _ProcessStat:
    started: int
    is_dead: bool


def _stat_of(process_id: int) -> _ProcessStat | None:
    """Return the ``/proc`` status of a process; None if there is none (``man 5 proc_pid_stat``)."""
    try:
        with open(f"/proc/{process_id}/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return None
    # The name of the program, in parentheses, may hold anything.
    fields = text.rpartition(")")[2].split()
    if len(fields) < 20:
        return None
    # A killed process stays a zombie until its parent reaps it. One whose main thread has ended while others
    # run looks the same except for the number of threads.
    return _ProcessStat(started=int(fields[19]), is_dead=fields[0] in _DEAD_STATES and int(fields[17]) <= 1)


def _exists(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _system() -> str | None:
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            boot = file.read().strip()
        processes = os.readlink("/proc/self/ns/pid")
    except OSError:
        return None
    try:
        time = os.readlink("/proc/self/ns/time")
    except OSError:
        # Linux before 5.6 has one time for all.
        time = "time"
    return f"{boot} {processes} {time}"
