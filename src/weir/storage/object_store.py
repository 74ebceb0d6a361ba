"""Objects in S3, Google Cloud Storage or Azure, and in the memory of this process."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any, TypeVar

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError
from obstore.exceptions import PreconditionError as ClientPreconditionError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from weir.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    OptionError,
    PreconditionError,
    StorageError,
    UriError,
)
from weir.storage.buffers import byte_view, parts_of, size_of
from weir.storage.interface import Bytes, ObjectMeta, ObjectStore
from weir.storage.location import Location, parse_location
from weir.storage.object_store_errors import (
    is_conflict,
    is_missing_bucket,
    is_panic,
    is_refused_range,
    missing_bucket,
    storage_error,
)
from weir.storage.object_store_options import (
    AZURE,
    GOOGLE,
    S3,
    ClientSettings,
    check_settings,
    resolve_options,
)
from weir.storage.paths import check_listed_path, check_path, check_prefix
from weir.storage.portal import PortalWatch

__all__ = ["ObjectStoreBackend"]

_JOIN_BELOW = 64 * 1024
_COPY_BELOW = 64 * 1024
# An unconditional put of more goes up in parts, at once and each with its own retries. Conditional
# puts are one request, whatever their size: no store takes the condition for parts.
_PARTS_FROM = 64 * 1024 * 1024
_PART_SIZE = 16 * 1024 * 1024
_LIST_CHUNK = 1000
_CONFLICT_ATTEMPTS = 6
_CONFLICT_WAIT_SECONDS = 0.05

_Result = TypeVar("_Result")

_memory: dict[str, MemoryStore] = {}
_memory_lock = threading.Lock()


class ObjectStoreBackend(ObjectStore):
    """Objects below a path of a bucket.

    Every operation is one request, apart from listings (one per 1,000 objects) and deletions (one
    per 1,000 objects on S3). Failed requests are repeated by the client, within the limits of the
    storage options ``client_max_retries`` and ``client_retry_timeout``.

    Conditional writes use the store's own means: ``If-None-Match`` and ``If-Match`` on S3 and Azure,
    generations on Google Cloud Storage. There, versions come from :meth:`head` and :meth:`compare_and_swap`;
    those of :meth:`list` distinguish objects but cannot be swapped.

    ``memory://`` is for tests: the objects live as long as the process, which all its stores of the
    same name share, and Lance does not see them.

    Parameters
    ----------
    uri : str
        ``s3://bucket/path``, ``gs://bucket/path``, ``az://container/path``,
        ``abfss://container@account.dfs.core.windows.net/path`` or ``memory://name/path``.
    storage_options : mapping of str to str, optional
        As Lance spells them; see :mod:`weir.storage.object_store_options`.

    Raises
    ------
    UriError
        The location is of another kind.
    OptionError
        A storage option is unknown, cannot be parsed, or is missing.

    Examples
    --------
    >>> store = ObjectStoreBackend("memory://example/table")
    >>> store.put_if_absent("wal/1.arrow", [b"head", b"body"])
    >>> bytes(store.get("wal/1.arrow"))
    b'headbody'
    """

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None = None) -> None:
        self._location = parse_location(uri)
        self._options: Mapping[str, str] = MappingProxyType(dict(storage_options or {}))
        self._client: Any = _open_client(self._location, self._options)
        self._versions = "version" if self._location.scheme == "gs" else "e_tag"
        self._prefix = f"{self._location.path}/" if self._location.path else ""
        self._portal_watch = PortalWatch(self.endpoint)

    def __reduce__(self) -> tuple[object, ...]:
        """Reopen the same location when the store is unpickled."""
        return (ObjectStoreBackend, (self._location.uri, dict(self._options)))

    def __repr__(self) -> str:
        """Say where the store is; the options may hold secrets."""
        return f"ObjectStoreBackend({self._location.uri!r})"

    @property
    def uri(self) -> str:
        """Location of the root, as Lance spells it."""
        return self._location.uri

    @property
    def storage_options(self) -> Mapping[str, str]:
        """The storage options the store was opened with, as they were given."""
        return self._options

    @property
    def sharing_key(self) -> Hashable:
        """Equal for the same root that is reached by the same options."""
        return self._location.uri, frozenset(self._options.items())

    @property
    def endpoint(self) -> str:
        """The scheme, and the endpoints that the options name."""
        named = sorted(value for name, value in self._options.items() if "endpoint" in name.lower())
        return " ".join([self._location.scheme, *named])

    @property
    def is_local(self) -> bool:
        """Always False."""
        return False

    # ------------------------------------------------------------------ reading

    def get(self, path: str) -> Bytes:
        """Return the whole object."""
        key = self._key(path)
        with self._reading(key):
            return _given(obstore.get(self._client, key).bytes())

    def get_with_version(self, path: str) -> tuple[Bytes, str]:
        """Return the whole object and its version, both of one moment: one request."""
        key = self._key(path)
        with self._reading(key):
            found = obstore.get(self._client, key)
            return _given(found.bytes()), self._meta(found.meta).version

    def get_range(self, path: str, start: int, length: int) -> Bytes:
        """Return ``length`` bytes from ``start``; fewer, or none, at the end of the object."""
        if length < 0:
            raise OptionError(f"A length cannot be negative: {length}", where=path)
        key = self._key(path)
        try:
            if length == 0:
                return self._range_by_size(key, start, length)
            with self._reading(key):
                if start >= 0:
                    return _given(obstore.get_range(self._client, key, start=start, length=length))
                # A store cannot be asked for the middle of the end, so the rest comes along.
                tail = obstore.get(self._client, key, options={"range": {"suffix": -start}}).bytes()
                return _given(tail[0:length:1] if len(tail) > length else tail)
        except ObjectNotFoundError:
            raise
        except StorageError as error:
            # Stores answer in their own ways to a range outside the object, and Azure knows no
            # ranges from the end: with the size at hand, no answer is needed.
            if not is_refused_range(error.__cause__):
                raise
            return self._range_by_size(key, start, length, otherwise=error)

    def _range_by_size(
        self, key: str, start: int, length: int, *, otherwise: StorageError | None = None
    ) -> Bytes:
        with self._reading(key):
            size = obstore.head(self._client, key)["size"]
            first = min(start, size) if start >= 0 else max(0, size + start)
            count = min(length, size - first)
            if count == 0:
                return b""
            if otherwise is not None and not isinstance(otherwise.__cause__, NotSupportedError):
                raise otherwise
            return _given(obstore.get_range(self._client, key, start=first, length=count))

    def head(self, path: str) -> ObjectMeta | None:
        """Return the metadata of the object, or None if it does not exist."""
        key = self._key(path)
        try:
            with self._reading(key):
                return self._meta(obstore.head(self._client, key))
        except ObjectNotFoundError:
            return None

    def list(self, prefix: str) -> Sequence[ObjectMeta]:
        """Return every object below the directory ``prefix``, at any depth, in path order."""
        directory = self._directory(prefix)
        with self._doing("Listing the objects", directory):
            chunks = obstore.list(self._client, directory or None, chunk_size=_LIST_CHUNK)
            found = [self._meta(entry) for chunk in chunks for entry in chunk]
        self._look_out_for_portals(directory, found)
        found.sort(key=lambda meta: meta.path)
        return found

    def list_first(self, prefix: str) -> Sequence[ObjectMeta]:
        """Return the objects below a directory that are first in path order: one request."""
        directory = self._directory(prefix)
        with self._doing("Listing the objects", directory):
            chunk = next(iter(obstore.list(self._client, directory or None, chunk_size=_LIST_CHUNK)), ())
        self._look_out_for_portals(directory, chunk)
        return sorted((self._meta(entry) for entry in chunk), key=lambda meta: meta.path)

    def list_directories(self, prefix: str) -> Sequence[str]:
        """Return the names (not paths) directly below the directory ``prefix`` that hold objects."""
        directory = self._directory(prefix)
        with self._doing("Listing the directories", directory):
            listed = obstore.list_with_delimiter(self._client, directory or None)
        found = listed["common_prefixes"]
        self._look_out_for_portals(directory, found or listed["objects"])
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found)

    def _look_out_for_portals(self, directory: str, found: Sized) -> None:
        """Refuse an empty listing of what lists nothing because it is not an object store."""
        if len(found):
            self._portal_watch.note()
        elif self._location.scheme != "memory":
            self._portal_watch.check(self._has, where=self._where(directory))

    def _has(self, name: str) -> bool:
        # Any other failure leaves it unknown.
        try:
            obstore.head(self._client, self._prefix + name)
        except (BaseError, OSError, ValueError):
            return False
        return True

    # ------------------------------------------------------------------ writing

    def put(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        """Write or replace the object atomically."""
        key = self._key(path)
        parts = parts_of(data)
        with self._doing("Writing the object", key):
            obstore.put(
                self._client,
                key,
                _payload(parts),
                use_multipart=size_of(parts) >= _PARTS_FROM,
                chunk_size=_PART_SIZE,
            )
        self._portal_watch.note()

    def put_if_absent(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        """Write the object atomically if it does not exist."""
        key = self._key(path)
        payload = _payload(parts_of(data))

        def attempt() -> None:
            obstore.put(self._client, key, payload, mode="create")

        def lost() -> bool:
            return self.head(path) is not None

        try:
            self._conditionally("Writing the object", key, attempt, lost)
        except _LostRaceError:
            raise ObjectExistsError(
                "An object of this name exists already",
                where=self._where(key),
                hint="Read it to see whose it is; nothing was changed",
            ) from None

    def compare_and_swap(self, path: str, data: Bytes | Sequence[Bytes], expected: str) -> str:
        """Replace the object if its version is still ``expected``; return the new version."""
        key = self._key(path)
        payload = _payload(parts_of(data))

        def attempt() -> str:
            result = obstore.put(self._client, key, payload, mode=self._update(expected))
            return _text(result, self._versions)

        def lost() -> bool:
            meta = self.head(path)
            return meta is None or meta.version != expected

        try:
            return self._conditionally("Replacing the object", key, attempt, lost)
        except _LostRaceError:
            raise PreconditionError(
                "The object has changed since it was read, or is gone",
                where=self._where(key),
                hint="Read it again and retry; nothing was changed",
            ) from None

    def _update(self, expected: str) -> Any:
        return {self._versions: expected}

    def _conditionally(
        self, what: str, key: str, attempt: Callable[[], _Result], lost: Callable[[], bool]
    ) -> _Result:
        """Make a conditional write, again where the store only says that it was busy."""
        for number in range(_CONFLICT_ATTEMPTS):
            with self._doing(what, key):
                try:
                    return attempt()
                except (AlreadyExistsError, ClientPreconditionError) as error:
                    conflict = error
            if not is_conflict(conflict) or lost():
                raise _LostRaceError
            time.sleep(_CONFLICT_WAIT_SECONDS * 2**number * random.uniform(0.5, 1.0))
        raise StorageError(
            f"{what} failed: the store kept answering that another request was under way",
            where=self._where(key),
            hint="Too many writers contend for one object: try again later",
        )

    def copy(self, source: str, target: str) -> None:
        """Write an object that has the content of another, by one request."""
        key = self._key(source)
        with self._reading(key):
            obstore.copy(self._client, key, self._key(target))

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects; missing ones are ignored."""
        keys = [self._prefix + check_listed_path(path) for path in paths]
        if not keys:
            return
        with self._doing("Deleting the objects", keys[0]):
            try:
                obstore.delete(self._client, keys)
            except FileNotFoundError as error:
                if is_missing_bucket(error):
                    raise
                # Only S3 ignores missing objects.
                for key in keys:
                    self._delete_one(key)

    def _delete_one(self, key: str) -> None:
        with suppress(FileNotFoundError):
            obstore.delete(self._client, key)

    def sync(self, prefix: str) -> None:
        """Do nothing: what an object store has taken is durable."""
        check_prefix(prefix)

    # ------------------------------------------------------------------ names and errors

    def _key(self, path: str) -> str:
        return self._prefix + check_path(path)

    def _directory(self, prefix: str) -> str:
        prefix = check_prefix(prefix)
        return self._prefix + prefix if prefix else self._location.path

    def _where(self, key: str) -> str:
        return f"{self._location.scheme}://{self._location.authority}/{key}"

    def _meta(self, entry: Any) -> ObjectMeta:
        version = _text(entry, self._versions)
        return ObjectMeta(
            entry["path"].removeprefix(self._prefix), entry["size"], entry["last_modified"], version
        )

    @contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        with self._doing("Reading the object", key):
            try:
                yield
            except FileNotFoundError as error:
                if isinstance(error, StorageError) or is_missing_bucket(error):
                    raise
                self._portal_watch.note()
                raise ObjectNotFoundError(
                    "There is no such object",
                    where=self._where(key),
                    hint="It was never written, or has been deleted since",
                ) from None

    @contextmanager
    def _doing(self, what: str, key: str) -> Iterator[None]:
        try:
            yield
        except StorageError:
            raise
        except FileNotFoundError as error:
            # Nothing but the bucket can be missing where something is written.
            raise missing_bucket(self._where(key)) from error
        except (BaseError, OSError, ValueError) as error:
            raise storage_error(error, what, self._where(key)) from error
        except BaseException as error:
            if is_panic(error):
                raise storage_error(error, what, self._where(key)) from error
            raise


class _LostRaceError(Exception):
    """Another writer was there first."""


def _open_client(location: Location, options: Mapping[str, str]) -> Any:
    scheme, authority = location.scheme, location.authority
    if scheme == "memory":
        if options:
            raise OptionError("A store in memory has no storage options", where=location.uri)
        with _memory_lock:
            return _memory.setdefault(authority, MemoryStore())
    provider = {"s3": S3, "gs": GOOGLE, "az": AZURE, "abfss": AZURE}.get(scheme)
    if provider is None:
        raise UriError(
            f"A location of the kind {scheme!r} is not an object store",
            where=location.uri,
            hint="Use weir.storage.open.open_store, which takes every kind",
        )
    settings = resolve_options(provider, options, os.environ)
    check_settings(settings)
    try:
        return _new_client(scheme, authority, settings)
    except BaseException as error:
        if not isinstance(error, (BaseError, ValueError, TypeError, OSError)) and not is_panic(error):
            raise
        reason = str(error).split("\n\nDebug source", 1)[0].strip()
        raise OptionError(
            f"The storage options for {provider.name} do not fit: {reason}",
            where=location.uri,
            hint="Check the storage options and the environment variables of the same names",
        ) from error


def _new_client(scheme: str, authority: str, settings: ClientSettings) -> Any:
    config: Any = settings.config
    others: dict[str, Any] = {}
    if settings.retries:
        others["retry_config"] = settings.retries
    if settings.headers:
        others["client_options"] = {"default_headers": settings.headers}
    if scheme == "s3":
        if authority.endswith("--x-s3"):
            config.setdefault("s3_express", "true")
        return S3Store(authority, config=config, **others)
    if scheme == "gs":
        return GCSStore(authority, config=config, **others)
    if scheme == "az":
        return AzureStore(authority, config=config, **others)
    return AzureStore.from_url(f"abfss://{authority}/", config=config, **others)


def _payload(parts: Sequence[Bytes]) -> Any:
    """Return what the client sends: one buffer if it is small, else the parts where they lie."""
    if size_of(parts) < _JOIN_BELOW:
        return b"".join(parts)
    views = [byte_view(part) for part in parts]
    return views[0] if len(views) == 1 else views


def _given(data: Any) -> Bytes:
    """Return what was received as ``bytes`` if small, else as an Arrow buffer on the same memory."""
    if len(data) < _COPY_BELOW:
        return bytes(data)
    return pa.py_buffer(data)


def _text(entry: Any, name: str) -> str:
    return entry.get(name) or entry.get("e_tag") or ""
