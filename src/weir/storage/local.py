"""Objects as files below a local directory."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from types import MappingProxyType

from weir.engine import failpoint
from weir.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    OptionError,
    PreconditionError,
    StorageError,
)
from weir.storage.buffers import parts_of, size_of
from weir.storage.interface import Bytes, ObjectMeta, ObjectStore
from weir.storage.local_durability import DurableNames
from weir.storage.local_errors import reporting
from weir.storage.local_files import ABSENT, read_fully, sync_directory, sync_file
from weir.storage.local_listing import LocalListing
from weir.storage.local_publish import NamedFile, StagedFile, UnnamedFile, supports_unnamed_files
from weir.storage.local_stamp import stamp_of
from weir.storage.local_swaps import SWAPS, Head, SwappedObject, remove_swaps_of_deleted
from weir.storage.paths import check_listed_path, check_path, check_prefix, is_reserved

__all__ = ["LocalStore"]

_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})
# How often to make a directory again that a concurrent delete has removed as empty.
_ATTEMPTS = 100
_ATTEMPTS_WHEN_REFUSED = 10
_ABANDONED_AFTER_SECONDS = 3600.0
_REMEMBERED_SWAPS = 256
_REUSED_BETWEEN_REMOVALS = 16


class LocalStore(ObjectStore):
    """Objects as files below a directory.

    An object is published with one ``link`` or ``rename`` of a complete file, so readers in any process see
    all of it or nothing, and a process that dies leaves nothing half-written. Missing directories are created
    by the first write into them, and removed by the delete that empties them. Only the root is not recreated:
    if it existed and is gone, it was removed with everything in it, and a write into an empty one would be
    acknowledged and lost.

    Nobody waits for a lock: a process that is stopped at any point blocks no other. Swapped objects have
    their later versions in ``.weir-swaps`` beside them, which listings do not show
    (:mod:`weir.storage.local_swaps`).

    Parameters
    ----------
    root : str or os.PathLike
        The directory; it need not exist. A relative path is taken from the current directory.
    fsync : bool, default True
        Whether a write returns only when the disk has the data, the name and every directory above
        it. Without it a write survives the death of the process, not of the machine. Deletions are
        never waited for: an object deleted just before a power cut may be there again.
    unnamed_files : bool, optional
        Whether to stage content in ``O_TMPFILE`` files. By default this is found out once, at the
        first write; False stages under hidden temporary names, which works on every filesystem
        with hard links.

    Examples
    --------
    >>> import tempfile
    >>> store = LocalStore(tempfile.mkdtemp(), fsync=False)
    >>> store.put_if_absent("wal/1.arrow", [b"head", b"body"])
    >>> bytes(store.get("wal/1.arrow"))
    b'headbody'
    >>> store.list_directories("")
    ['wal']
    """

    def __init__(
        self, root: str | os.PathLike[str], *, fsync: bool = True, unnamed_files: bool | None = None
    ) -> None:
        self._root = os.path.abspath(root)
        self._base = self._root if self._root.endswith("/") else self._root + "/"
        self._fsync = fsync
        self._unnamed_files = unnamed_files
        self._kind: type[StagedFile] | None = None
        if unnamed_files is not None:
            self._kind = UnnamedFile if unnamed_files else NamedFile
        self._listing = LocalListing(self._base)
        self._names = DurableNames(self._root)
        self._swapped: dict[str, Head] = {}
        # Which directory the root is, once it is there.
        self._root_number = self._number_of_root()

    def __reduce__(self) -> tuple[object, ...]:
        """Reopen the same root when the store is unpickled."""
        return (_reopen, (self._root, self._fsync, self._unnamed_files))

    def __repr__(self) -> str:
        """Say where the store is and whether it waits for the disk."""
        return f"LocalStore({self._root!r}, fsync={self._fsync})"

    @property
    def uri(self) -> str:
        """The absolute path of the root, which Lance takes as it is (it decodes ``file://`` URIs)."""
        return self._root

    @property
    def storage_options(self) -> Mapping[str, str]:
        """Always empty: the local filesystem has none."""
        return _NO_OPTIONS

    @property
    def is_local(self) -> bool:
        """Always True."""
        return True

    @property
    def sharing_key(self) -> Hashable:
        """Equal for the same root and the same promise about losses of power."""
        return "local", self._root, self._fsync, self._unnamed_files

    @property
    def waits_for_disk(self) -> bool:
        """Whether writes wait for the disk."""
        return self._fsync

    # ------------------------------------------------------------------ reading

    def location_of(self, path: str) -> str:
        """Return the file of an object: for a swapped one that of its newest version."""
        location = self._base + check_path(path)
        with contextlib.suppress(OSError):
            head = SwappedObject(location).head()
            if head is not None:
                return head.location
        return location

    def get(self, path: str) -> Bytes:
        """Return the whole object."""
        return self._read(path, 0, None)

    def get_range(self, path: str, start: int, length: int) -> Bytes:
        """Return ``length`` bytes from ``start``; fewer, or none, at the end of the object."""
        if length < 0:
            raise OptionError(f"A length cannot be negative: {length}", where=path)
        return self._read(path, start, length)

    def _read(self, path: str, start: int, length: int | None) -> Bytes:
        location = self._base + check_path(path)
        with reporting("Reading the object", location):
            while True:
                descriptor = SwappedObject(location).open()
                if descriptor is None:
                    raise _not_found(location)
                try:
                    status = os.fstat(descriptor)
                    if not stat.S_ISREG(status.st_mode):
                        raise _not_found(location)
                    size = status.st_size
                    first = min(start, size) if start >= 0 else max(0, size + start)
                    count = size - first if length is None else min(length, size - first)
                    data = read_fully(descriptor, first, count)
                    # The file of a version that was replaced long ago may have been written anew.
                    if os.fstat(descriptor).st_mtime_ns == status.st_mtime_ns:
                        return data
                finally:
                    os.close(descriptor)

    def head(self, path: str) -> ObjectMeta | None:
        """Return the metadata of the object, or None if it does not exist."""
        location = self._base + check_path(path)
        with reporting("Looking at the object", location):
            head = SwappedObject(location).head()
        return None if head is None else _meta(path, head.status)

    def stamp(self, *paths: str) -> Hashable | None:
        """Return the status of files and directories; None while they have just changed."""
        # A directory that was seen empty gets its first object without a change of the one that it is in.
        unlisted = self._listing.unlisted
        stamp = stamp_of([self._base + path for path in paths])
        return None if stamp is None else (unlisted, stamp)

    def list(self, prefix: str) -> Sequence[ObjectMeta]:
        """Return every object below the directory ``prefix``, at any depth, in path order."""
        prefix = check_prefix(prefix)
        with reporting("Listing the directory", self._base + prefix):
            found = [_meta(path, status) for path, status in self._listing.objects(prefix)]
        found.sort(key=attrgetter("path"))
        return found

    def list_directories(self, prefix: str) -> Sequence[str]:
        """Return the names (not paths) directly below the directory ``prefix`` that hold objects."""
        prefix = check_prefix(prefix)
        with reporting("Listing the directory", self._base + prefix):
            return self._listing.directories(prefix)

    # ------------------------------------------------------------------ writing

    def put_if_absent(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        """Write the object atomically if it does not exist."""
        location = self._base + check_path(path)
        directory = os.path.dirname(location)
        with reporting("Writing the object", location):
            staged = self._stage(directory, data)
            SwappedObject(location).remove_dead()
            try:
                self._link(staged, location, directory)
            except FileExistsError:
                if os.path.isdir(location):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) from None
                raise ObjectExistsError(
                    "An object of this name exists already",
                    where=location,
                    hint="Read it to see whose it is; nothing was changed",
                ) from None
            finally:
                staged.close()
        self._make_durable(directory)

    def put(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        """Write or replace the object atomically."""
        location = self._base + check_path(path)
        with reporting("Writing the object", location):
            for _ in range(_ATTEMPTS):
                staged = self._stage(os.path.dirname(location), data)
                try:
                    directory = self._replace(staged, SwappedObject(location))
                finally:
                    staged.close()
                if directory is not None:
                    break
            else:
                raise OSError(errno.EBUSY, "the object keeps changing", location)
        self._make_durable(directory)

    def _replace(self, staged: StagedFile, swapped: SwappedObject) -> str | None:
        """Publish a file whatever there is; return the directory that names it, or None to try again."""
        head = swapped.head()
        if head is None or not head.number:
            directory = os.path.dirname(swapped.location)
            swapped.remove_dead()
            failpoint.reach("local_put.before_rename")
            self._link_or_rename(staged, swapped.location, directory)
            swapped.remove_dead()
            return directory
        chain = swapped.follow(head, staged.link)
        if chain is not None:
            swapped.remove_old(head.number + 1, chain)
        return chain

    def _link_or_rename(self, staged: StagedFile, location: str, directory: str) -> None:
        for _ in range(_ATTEMPTS):
            try:
                self._link(staged, location, directory)
                return
            except FileExistsError:
                pass
            try:
                staged.rename(location)
                return
            except FileNotFoundError:
                continue  # deleted with its directory since the link was tried
        raise OSError(errno.EBUSY, "the directory keeps being removed", directory)

    def compare_and_swap(self, path: str, data: Bytes | Sequence[Bytes], expected: str) -> str:
        """Replace the object if its version is still ``expected``; return the new version."""
        location = self._base + check_path(path)
        swapped = SwappedObject(location)
        with reporting("Replacing the object", location):
            known = self._swapped.pop(location, None)
            is_known = known is not None and _version(known.status) == expected and swapped.is_still(known)
            head = known if is_known else swapped.head()
            if head is None:
                raise PreconditionError(
                    "The object to replace is gone",
                    where=location,
                    hint="It was deleted by another process; nothing was changed",
                )
            if _version(head.status) != expected:
                raise _changed(location)
            reusable = swapped.reusable(head) if is_known else None
            staged = self._stage(os.path.dirname(location), data, reusable)
            try:
                chain = swapped.follow(head, staged.link)
                if chain is None:
                    raise _changed(location)
                newest = head.followed_by(chain, os.fstat(staged.descriptor))
                version = _version(newest.status)
            finally:
                staged.close()
        if not head.number:
            self._names.forget(chain)  # it may have been there before, for an object that was deleted
        self._make_durable(chain)
        self._remember(location, newest)
        # One that took an old version's place leaves as many as there were.
        if reusable is None or not newest.number % _REUSED_BETWEEN_REMOVALS:
            # Orphans of an object that was replaced were looked for by the first swap from here.
            swapped.remove_old(newest.number, chain, alone=is_known)
        return version

    def _remember(self, location: str, head: Head) -> None:
        """Remember a version that was swapped in here: who swaps an object will most often do it again."""
        while len(self._swapped) >= _REMEMBERED_SWAPS:
            with contextlib.suppress(KeyError, StopIteration, RuntimeError):  # other threads do the same
                del self._swapped[next(iter(self._swapped))]
        self._swapped[location] = head

    def copy(self, source: str, target: str) -> None:
        """Write an object that has the content of another: a second name of its file."""
        origin, location = (self._base + check_path(path) for path in (source, target))
        directory = os.path.dirname(location)
        with reporting("Copying the object", location):
            head = SwappedObject(origin).head()
            if head is None:
                raise _not_found(origin)
            if head.number:
                raise OSError(errno.EOPNOTSUPP, "objects that are swapped are not copied", origin)
            try:
                # Before the new name exists: it must not look old and unreferenced to a deletion of garbage.
                os.utime(origin)
                for _ in range(_ATTEMPTS):
                    try:
                        os.link(origin, location)
                        break
                    except FileNotFoundError:
                        os.stat(origin)
                        self._make_directories(directory)
                else:
                    raise OSError(errno.EBUSY, "the directory keeps being removed", directory)
            except FileNotFoundError:
                raise _not_found(origin) from None
        self._make_durable(directory)

    def append(self, path: str, data: bytes, *, synced: bool) -> int:
        """Append to a file that nobody else appends to, and return where the data begins in it.

        This is for records of which each can be found torn: unlike an object, the file may end in the middle
        of what was appended last, if the process died or the disk was full.

        Parameters
        ----------
        path : str
            The file. It is created if it does not exist.
        data : bytes
            What to append.
        synced : bool
            Whether to wait for the disk, if the store does.
        """
        location = self._base + check_path(path)
        directory = os.path.dirname(location)
        with reporting("Appending to the file", location):
            descriptor = self._open_to_append(location, directory)
            try:
                begin = os.fstat(descriptor).st_size
                if os.write(descriptor, data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), location)
                if synced and self._fsync:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
        if synced:
            self._make_durable(directory)
        return begin

    def _open_to_append(self, location: str, directory: str) -> int:
        for _ in range(_ATTEMPTS):
            try:
                return os.open(location, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            except FileNotFoundError:
                self._make_directories(directory)
        raise OSError(errno.EBUSY, "the directory keeps being removed", directory)

    def _stage(
        self, directory: str, data: Bytes | Sequence[Bytes], reusable: str | None = None
    ) -> StagedFile:
        parts = parts_of(data)
        size = size_of(parts)
        reused = None if reusable is None else NamedFile.reusing(reusable)
        staged = reused or self._new_file(directory)
        try:
            staged.fill(parts, size, fsync=self._fsync)
        except BaseException:
            staged.close()
            raise
        return staged

    def _new_file(self, directory: str) -> StagedFile:
        for attempt in range(_ATTEMPTS):
            try:
                if self._kind is None:
                    self._kind = UnnamedFile if supports_unnamed_files(directory) else NamedFile
                return self._kind.create(directory)
            except FileNotFoundError:
                self._make_directories(directory)
            except PermissionError as error:
                # The error of ext4 for a directory removed while an unnamed file is created in it.
                if error.errno != errno.EPERM or attempt >= _ATTEMPTS_WHEN_REFUSED:
                    raise
                self._make_directories(directory)
        raise OSError(errno.EBUSY, "the directory keeps being removed", directory)

    def _link(self, staged: StagedFile, location: str, directory: str) -> None:
        for _ in range(_ATTEMPTS):
            try:
                staged.link(location)
                return
            except FileNotFoundError:
                self._make_directories(directory)
        raise OSError(errno.EBUSY, "the directory keeps being removed", directory)

    def _make_directories(self, directory: str) -> None:
        # A write into a directory that replaced a removed or moved one would be lost.
        if self._root_number is not None and self._number_of_root() != self._root_number:
            raise StorageError(
                "the directory was removed or moved after it was opened, or replaced by another",
                where=self._root,
                hint="Nothing was written; open it again at its present location",
            )
        self._names.forget(directory)
        if self._root_number is None:
            os.makedirs(self._root, exist_ok=True)
            self._root_number = self._number_of_root()
        # Only below the root, so that this does not recreate a root being removed. A parent may be removed as
        # empty meanwhile, or appear and disappear: the caller retries, and its own attempt fails if a file is
        # in the way.
        with contextlib.suppress(FileNotFoundError):
            parts = directory[len(self._base) :].split("/")
            for end in range(1, len(parts) + 1):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(self._base + "/".join(parts[:end]))

    def _number_of_root(self) -> int | None:
        try:
            return os.stat(self._root).st_ino
        except OSError:
            return None

    # ------------------------------------------------------------------ deleting

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects, and the directories that hold nothing any more."""
        by_directory: dict[str, set[str]] = {}
        for path in paths:
            location = self._base + check_listed_path(path)
            by_directory.setdefault(os.path.dirname(location), set()).add(location)
        # Deepest first, so that a directory comes after those in it.
        for directory in sorted(by_directory, key=lambda name: name.count("/"), reverse=True):
            self._delete_in(directory, by_directory[directory])

    def _delete_in(self, directory: str, locations: Collection[str]) -> None:
        if not os.path.isdir(directory):
            return
        with reporting("Deleting objects of the directory", directory):
            for location in locations:
                _unlink(location)
            if os.path.isdir(os.path.join(directory, SWAPS)):
                for location in locations:
                    SwappedObject(location).remove_dead()
        self._remove_empty(directory)

    def _remove_empty(self, directory: str) -> None:
        while len(directory) > len(self._root):
            try:
                os.rmdir(directory)
            except FileNotFoundError:
                pass  # another process removed it
            except OSError:
                # Not empty, or not ours to remove. Either way the objects are gone.
                with contextlib.suppress(OSError):
                    if remove_swaps_of_deleted(directory) or _remove_abandoned(directory):
                        continue
                return
            self._names.forget(directory)
            directory = os.path.dirname(directory)

    # ------------------------------------------------------------------ durability

    def sync(self, prefix: str) -> None:
        """Fsync every file and directory below ``prefix``, and the directories above it.

        Does nothing when the store does not wait for the disk.
        """
        prefix = check_prefix(prefix)
        if not self._fsync:
            return
        top = self._base + prefix if prefix else self._root
        directories: set[str] = set()
        with reporting("Making the files durable", top):
            for path, _ in self._listing.objects(prefix):
                location = self._base + path
                with contextlib.suppress(FileNotFoundError):
                    sync_file(location)
                directories.update(_directories_between(location, top))
            for directory in sorted(directories, key=len, reverse=True):
                with contextlib.suppress(FileNotFoundError):
                    sync_directory(directory)
            if os.path.isdir(top):
                self._names.sync(top)

    def _make_durable(self, directory: str) -> None:
        if not self._fsync:
            return
        with (
            reporting("The object was written, but making its name durable", directory),
            # A missing directory was emptied: the object was deleted already.
            contextlib.suppress(FileNotFoundError),
        ):
            self._names.sync(directory)


def _reopen(root: str, fsync: bool, unnamed_files: bool | None) -> LocalStore:
    return LocalStore(root, fsync=fsync, unnamed_files=unnamed_files)


def _directories_between(location: str, top: str) -> Iterator[str]:
    """Yield the directories that hold ``location`` and lie below ``top``, deepest first."""
    directory = os.path.dirname(location)
    while len(directory) > len(top):
        yield directory
        directory = os.path.dirname(directory)


def _version(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def _meta(path: str, status: os.stat_result) -> ObjectMeta:
    modified = datetime.fromtimestamp(status.st_mtime, UTC)
    return ObjectMeta(path, status.st_size, modified, _version(status))


def _unlink(location: str) -> None:
    try:
        os.unlink(location)
    except OSError as error:
        if error.errno in ABSENT or os.path.isdir(location):
            return  # no object of this name
        raise


def _remove_abandoned(directory: str) -> bool:
    """Remove what dead processes left in a directory that holds nothing else; whether it did."""
    leftovers = []
    try:
        # Something was just deleted in it, so its time is the file system's clock, which may be another
        # machine's and which dates the files.
        oldest = os.stat(directory).st_mtime - _ABANDONED_AFTER_SECONDS
        with os.scandir(directory) as entries:
            for entry in entries:
                # Mostly the first entry is an object, and that is the end of it.
                if not is_reserved(entry.name) or not entry.is_file(follow_symlinks=False):
                    return False
                if entry.stat().st_mtime >= oldest:
                    return False
                leftovers.append(entry.path)
        for path in leftovers:
            os.unlink(path)
    except OSError:
        return False
    return bool(leftovers)


def _changed(location: str) -> PreconditionError:
    return PreconditionError(
        "The object has changed since it was read",
        where=location,
        hint="Read it again and retry; nothing was changed",
    )


def _not_found(location: str) -> ObjectNotFoundError:
    return ObjectNotFoundError(
        "There is no such object",
        where=location,
        hint="It was never written, or has been deleted since",
    )
