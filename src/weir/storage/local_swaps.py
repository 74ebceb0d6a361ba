"""Lock-free compare-and-swap of files.

The file of an object's own name is its first version, and never changes while the object lives. Replacements
by compare-and-swap are put beside it, as ``.weir-swaps/NAME/DIGEST/NUMBER``: the digest is that of the first
version, the numbers start at 1, and the highest is the object's content. A swap links its content under the
next number, which fails if another process has done so. That link decides, and nothing ever waits.

- A process that sleeps between reading and linking may link a number that has come and gone. It is below the
  highest, so readers ignore it. The sleeper finds out: versions are removed from the lowest up, and never the
  last two, so its link is valid if its predecessor still exists, or if nothing is above it. Number 0 is an
  empty file, for the first swap to check. Versions of the last ten seconds are kept too: a swap overtaken by
  many is still recognised as successful, unless its process sleeps for longer right after the link, and then
  considers itself refused.
- Whoever swapped a version in and swaps again need not look for the newest one: if its own is still there and
  the next number is free, nothing came in between.
- Whoever does so writes the file of an obsolete version anew, and links that: after many deletions a file
  system may search long for a free inode (ext4 does), and leases are renewed all the time. A file with a
  second name is left alone, as a backup may consist of such. A process that dies meanwhile leaves a version
  that nobody reads. A reader that has slept since it opened one finds that it was modified, and starts over.
- Deleting the object is one ``unlink`` of its first version, and putting another in its place one ``rename``.
  Either leaves versions behind that follow something which no longer exists. They are never read, even if a
  sleeper adds to them later, and a later operation removes them.
- A copy of the directory is a copy of the object: nothing depends on what the file system says of a file.

The first versions of an object that is deleted and recreated have to differ, which
:meth:`weir.storage.interface.ObjectStore.compare_and_swap` requires of everything that is swapped.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass

from xxhash import xxh3_128_hexdigest

from weir.engine import failpoint
from weir.storage.local_files import ABSENT, read_fully, status_of
from weir.storage.paths import RESERVED_PREFIX, is_reserved

__all__ = ["SWAPS", "Head", "SwappedObject", "remove_swaps_of_deleted"]

SWAPS = f"{RESERVED_PREFIX}swaps"
"""The directory beside the objects with the later versions of swapped ones."""

_KEPT = 2
_KEPT_NANOSECONDS = 10_000_000_000
_DIGITS = 20


@dataclass(frozen=True, slots=True)
class Head:
    """What an object holds.

    Parameters
    ----------
    number : int
        The number of the version; 0 is the first, under the object's own name.
    location : str
        Where it is.
    status : stat_result
        Its file status.
    first : stat_result
        The file status of the first version.
    mark : stat_result or None
        The file status of that number; None before the first swap.
    chain : str or None
        The directory of the versions that follow the first; None if nothing was ever swapped.
    """

    number: int
    location: str
    status: os.stat_result
    first: os.stat_result
    mark: os.stat_result | None
    chain: str | None = None

    def followed_by(self, chain: str, status: os.stat_result) -> Head:
        """Return what the object holds once a version with this file status was put after this one."""
        number = self.number + 1
        return Head(number, _version(chain, number), status, self.first, status, chain)


class SwappedObject:
    """An object that may have been swapped.

    Parameters
    ----------
    location : str
        Where the file of the object's own name is, or would be.
    """

    def __init__(self, location: str) -> None:
        self.location = location
        directory, _, name = location.rpartition("/")
        self._swaps = f"{directory}/{SWAPS}"
        self._chains = f"{self._swaps}/{name}"

    def head(self) -> Head | None:
        """Return what the object holds; None if there is no such object."""
        while True:
            # In this order: if nothing was swapped by now, the file found next was not swapped before.
            was_swapped = bool(_names(self._chains))
            first = status_of(self.location)
            if first is None:
                return None
            if not was_swapped:
                return Head(0, self.location, first, first, None)
            chain = self._chain(first)
            if chain is None:
                continue
            newest = max(_numbers(chain), default=-1)
            mark = status_of(_version(chain, newest)) if newest >= 0 else None
            # What follows a version that is gone does not count, so that has to be there still.
            if (newest >= 0 and mark is None) or not _is_same(status_of(self.location), first):
                continue
            if mark is None or newest == 0:
                return Head(0, self.location, first, first, mark, chain)
            return Head(newest, _version(chain, newest), mark, first, mark, chain)

    def is_still(self, head: Head) -> bool:
        """Whether a version that was swapped in before is there, and follows the same first version.

        Then every later one is there too, since they are removed from the lowest up: :meth:`follow` finds the
        next number taken if there is one.
        """
        return (
            head.number > 0
            and _is_same(status_of(head.location), head.status)
            and _is_same(status_of(self.location), head.first)
        )

    def reusable(self, head: Head) -> str | None:
        """Return the file of an obsolete version, for the one after ``head`` to be written to, if any."""
        number = head.number - _KEPT
        if number < 1 or head.chain is None:
            return None
        location = _version(head.chain, number)
        status = status_of(location)
        is_old = status is not None and _is_obsolete(status, head.status)
        return location if is_old else None

    def open(self) -> int | None:
        """Open what the object holds, for reading; return None if there is no such object."""
        flags = os.O_RDONLY | os.O_CLOEXEC
        while True:
            # Opened before anybody asks whether it was swapped: most often it was not, or does not exist.
            try:
                descriptor = os.open(self.location, flags)
            except OSError as error:
                if error.errno in ABSENT:
                    return None
                raise
            if not _names(self._chains):
                return descriptor
            os.close(descriptor)
            head = self.head()
            if head is None:
                return None
            try:
                descriptor = os.open(head.location, flags)
            except OSError as error:
                if error.errno in ABSENT:
                    continue
                raise
            if _is_same(os.fstat(descriptor), head.status):
                return descriptor
            os.close(descriptor)

    def follow(self, head: Head, publish: Callable[[str], None]) -> str | None:
        """Put a version after another.

        Parameters
        ----------
        head : Head
            The version to follow.
        publish : callable
            Gives the content the name it is passed, or raises :class:`FileExistsError`.

        Returns
        -------
        str or None
            The directory that has the name of the new version; None if what was to be followed is not the
            newest version any more.
        """
        # If the first version was replaced since, that is found out below, when the name is given.
        chain = head.chain or self._chain(head.first)
        if chain is None:
            return None
        number, mark = head.number + 1, head.mark
        if mark is None:
            failpoint.reach("local_swap.before_begin")
            mark = self._begin(chain, head.first)
            if mark is None or max(_numbers(chain), default=0):
                return None  # another process deleted or swapped it: our attempt may be outdated
            failpoint.reach("local_swap.after_begin")
        failpoint.reach("local_swap.before_link")
        try:
            publish(_version(chain, number))
        except (FileExistsError, FileNotFoundError):
            return None  # another process was faster, or deleted the object and its versions
        failpoint.reach("local_swap.after_link")
        follows = (
            _is_same(status_of(_version(chain, head.number)), mark)
            or max(_numbers(chain), default=0) == number
        )
        if not _is_same(status_of(self.location), head.first):
            self.remove_dead()
            return None
        return chain if follows else None

    def _begin(self, chain: str, first: os.stat_result) -> os.stat_result | None:
        """Create number 0, which the first swap follows, unless it exists; return it.

        None if the object is not there any more.
        """
        while _is_same(status_of(self.location), first):
            with contextlib.suppress(FileNotFoundError):
                with contextlib.suppress(FileExistsError):
                    os.close(os.open(_version(chain, 0), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))
                return os.stat(_version(chain, 0))
            for directory in (self._swaps, self._chains, chain):
                with contextlib.suppress(FileExistsError, FileNotFoundError):
                    os.mkdir(directory)
        return None

    def remove_old(self, newest: int, chain: str, *, alone: bool = False) -> None:
        """Remove obsolete versions, from the lowest up, and orphaned ones unless ``alone``."""
        failpoint.reach("local_swap.before_removal")
        # The next operation does what fails now.
        with contextlib.suppress(OSError):
            status = os.stat(_version(chain, newest))
            for number in sorted(_numbers(chain)):
                # The newest obsolete one stays, for the next swap to write it anew.
                if number >= newest - _KEPT or not _is_obsolete(os.stat(_version(chain, number)), status):
                    break
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(_version(chain, number))
            # The chain was that of the object a moment ago. If it no longer is, whoever replaced the first
            # version removes it.
            if not alone and _names(self._chains) != [chain.rpartition("/")[2]]:
                self.remove_dead()

    def remove_dead(self) -> None:
        """Remove versions that follow a first one which is not there any more."""
        # In this order: a listed version that does not belong to the later first version never will.
        chains = _names(self._chains)
        if not chains:
            return
        with contextlib.suppress(OSError):
            alive = None
            first = status_of(self.location)
            if first is not None:
                alive = self._chain(first)
                if alive is None:
                    return
            for name in chains:
                chain = os.path.join(self._chains, name)
                if chain == alive:
                    continue
                for version in _names(chain):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(os.path.join(chain, version))
                with contextlib.suppress(OSError):
                    os.rmdir(chain)
            if alive is None:
                os.rmdir(self._chains)
                os.rmdir(self._swaps)

    def _chain(self, first: os.stat_result) -> str | None:
        """Return where the versions are that follow the first one; None if that is not there any more."""
        try:
            descriptor = os.open(self.location, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in ABSENT:
                return None
            raise
        try:
            if not _is_same(os.fstat(descriptor), first):
                return None
            content = read_fully(descriptor, 0, first.st_size)
        finally:
            os.close(descriptor)
        return os.path.join(self._chains, xxh3_128_hexdigest(content))


def remove_swaps_of_deleted(directory: str) -> bool:
    """Remove what swaps have left in a directory that holds no objects any more; say whether it did."""
    names = _names(directory)
    if SWAPS not in names or not all(is_reserved(name) for name in names):
        return False
    swaps = os.path.join(directory, SWAPS)
    for name in _names(swaps):
        SwappedObject(os.path.join(directory, name)).remove_dead()
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(swaps, name))
    with contextlib.suppress(OSError):
        os.rmdir(swaps)
    return not os.path.exists(swaps)


def _is_obsolete(version: os.stat_result, newest: os.stat_result) -> bool:
    return version.st_mtime_ns <= newest.st_mtime_ns - _KEPT_NANOSECONDS


def _version(chain: str, number: int) -> str:
    return f"{chain}/{number:0{_DIGITS}d}"


def _numbers(chain: str) -> list[int]:
    return [int(name) for name in _names(chain) if name.isdigit()]


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError as error:
        if error.errno in ABSENT:
            return []
        raise


def _is_same(one: os.stat_result | None, other: os.stat_result) -> bool:
    return one is not None and (one.st_ino, one.st_mtime_ns) == (other.st_ino, other.st_mtime_ns)
