"""Publishing files atomically in a directory.

A staged file holds its content before it has its name. It then gets the name either by ``link``, which
fails if the name is taken, or by ``rename``, which replaces what had it. Two kinds do this:
:class:`UnnamedFile` (``O_TMPFILE``) leaves nothing behind when the process dies, and is the faster;
:class:`NamedFile` works on every filesystem with hard links, under a name that listings hide.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from weir.storage.interface import Bytes
from weir.storage.local_files import write_fully
from weir.storage.paths import RESERVED_PREFIX

__all__ = ["NamedFile", "StagedFile", "UnnamedFile", "supports_unnamed_files"]

_O_TMPFILE: int | None = getattr(os, "O_TMPFILE", None)
_DESCRIPTORS = "/proc/self/fd"
_SECOND = 1_000_000_000
# How far two clocks are apart at most that pass for one.
_AGREEMENT = _SECOND
_PROCESS_TOKEN = secrets.token_hex(6)
_counter = itertools.count()

_CANNOT_MAKE = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS})
# Some filesystems make unnamed files and then cannot name them.
_CANNOT_NAME = _CANNOT_MAKE | {errno.EXDEV, errno.EPERM}


def _temporary_name() -> str:
    # Unique between machines by the token and between forked processes by the process id. The end
    # hides it from Lance's listings, the beginning from ours.
    return f"{RESERVED_PREFIX}{_PROCESS_TOKEN}-{os.getpid()}-{next(_counter)}#0"


def _finer(on_file: int, now: int) -> int:
    """Return the time of modification for a file that was just written, in nanoseconds since 1970.

    The kernel's clock ticks every few milliseconds, within which an inode may be freed and reused; versions
    of objects are distinguished by time, so it has to be finer. Our own clock is. But if the file system
    belongs to another machine, its clock is the one that all its clients share: if the two differ, the
    seconds come from the file system, and the finer part from ours.

    Parameters
    ----------
    on_file : int
        What the file system says.
    now : int
        What our own clock says.

    Examples
    --------
    >>> _finer(5_000_000_000, 5_003_217_654)
    5003217654
    >>> _finer(5_000_000_000, 99_003_217_654)
    5003217654
    """
    if abs(now - on_file) <= _AGREEMENT:
        return now
    return on_file - on_file % _SECOND + now % _SECOND


class StagedFile(ABC):
    """A file with content and no place yet. Close it in any case.

    Attributes
    ----------
    descriptor : int
        The open file.
    """

    __slots__ = ("descriptor",)

    descriptor: int

    @classmethod
    @abstractmethod
    def create(cls, directory: str) -> StagedFile:
        """Open an empty file on the filesystem of ``directory``."""

    @abstractmethod
    def link(self, target: str) -> None:
        """Give the file its name; raises :class:`FileExistsError` if the name is taken."""

    @abstractmethod
    def rename(self, target: str) -> None:
        """Give the file its name, in place of what had it."""

    def close(self) -> None:
        """Let go of the file; it vanishes if it has no name."""
        os.close(self.descriptor)

    def fill(self, parts: Sequence[Bytes], size: int, *, fsync: bool) -> None:
        """Write the content, and make it durable before the file can have a name.

        Parameters
        ----------
        parts : sequence of Bytes
            The content.
        size : int
            Its size in bytes.
        fsync : bool
            Whether to wait until the disk has it.
        """
        write_fully(self.descriptor, parts, size)
        status = os.fstat(self.descriptor)
        if status.st_size != size:
            os.ftruncate(self.descriptor, size)  # it was another's before
        modified = _finer(status.st_mtime_ns, time.time_ns())
        os.utime(self.descriptor, ns=(modified, modified))
        if fsync:
            os.fsync(self.descriptor)


class UnnamedFile(StagedFile):
    """A staged file that has no name at all until it is published (Linux)."""

    __slots__ = ()

    @classmethod
    def create(cls, directory: str) -> UnnamedFile:
        """Open an unnamed file on the filesystem of ``directory``."""
        if _O_TMPFILE is None:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), directory)
        staged = cls()
        staged.descriptor = os.open(directory, os.O_WRONLY | os.O_CLOEXEC | _O_TMPFILE, 0o666)
        return staged

    def link(self, target: str) -> None:
        """Give the file its name; raises :class:`FileExistsError` if the name is taken."""
        # Naming a directory descriptor, though the path is absolute, is what makes CPython call
        # linkat and follow the link in /proc.
        os.link(f"{_DESCRIPTORS}/{self.descriptor}", target, src_dir_fd=self.descriptor)

    def rename(self, target: str) -> None:
        """Give the file its name, in place of what had it."""
        temporary = os.path.join(os.path.dirname(target), _temporary_name())
        self.link(temporary)
        try:
            os.rename(temporary, target)
        except OSError:
            os.unlink(temporary)
            raise


class NamedFile(StagedFile):
    """A staged file under a name that it will lose: a temporary one beside its place, or its former one."""

    __slots__ = ("_temporary",)

    _temporary: str | None

    @classmethod
    def create(cls, directory: str) -> NamedFile:
        """Open a file in ``directory`` under a name that listings hide."""
        staged = cls()
        temporary = os.path.join(directory, _temporary_name())
        staged.descriptor = os.open(temporary, os.O_WRONLY | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, 0o666)
        staged._temporary = temporary
        return staged

    @classmethod
    def reusing(cls, file: str) -> NamedFile | None:
        """Take a file that nobody needs any more, to be written anew and to lose its name.

        None if it is not there, if another process has taken it, or if it has a second name.
        """
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it before has published it: under this name and another, or no more under this one.
            status = os.fstat(descriptor)
            is_free = status.st_nlink == 1 and os.path.samestat(status, os.stat(file))
        except OSError:
            is_free = False
        if not is_free:
            os.close(descriptor)
            return None
        staged = cls()
        staged.descriptor = descriptor
        staged._temporary = file
        return staged

    def link(self, target: str) -> None:
        """Give the file its name; raises :class:`FileExistsError` if the name is taken."""
        assert self._temporary is not None
        try:
            os.link(self._temporary, target)
        except FileExistsError:
            # A network filesystem that lost the answer tries again and finds its own work.
            if not os.path.samestat(os.fstat(self.descriptor), os.stat(target)):
                raise

    def rename(self, target: str) -> None:
        """Give the file its name, in place of what had it."""
        assert self._temporary is not None
        os.rename(self._temporary, target)
        self._temporary = None

    def close(self) -> None:
        """Let go of the file and of its temporary name."""
        super().close()
        if self._temporary is not None:
            # It is not there if the whole directory was removed meanwhile.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._temporary)


def supports_unnamed_files(directory: str) -> bool:
    """Whether files can be published from ``O_TMPFILE`` in an existing directory.

    Tried out, because the kernel, the filesystem and the container all have a say.

    Raises
    ------
    OSError
        The directory cannot be written to at all, or has gone.
    """
    probe = os.path.join(directory, _temporary_name())
    try:
        staged = UnnamedFile.create(directory)
    except OSError as error:
        if error.errno in _CANNOT_MAKE:
            return False
        raise
    try:
        staged.link(probe)
    except OSError as error:
        if error.errno in _CANNOT_NAME:
            return False
        if error.errno == errno.ENOENT and not os.path.exists(f"{_DESCRIPTORS}/{staged.descriptor}"):
            return False  # no /proc
        raise
    else:
        os.unlink(probe)
        return True
    finally:
        staged.close()
