"""Snapshots: states of namespaces that are saved under names, and those of points in time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from weir.errors import ConflictError, InputError, ObjectExistsError, ObjectNotFoundError, WeirError
from weir.format.snapshot_token import SnapshotToken
from weir.namespaces import Namespace
from weir.namespaces.names import directory_of
from weir.service.fields import digits
from weir.service.refusals import Refusal
from weir.service.zeppelin.namespaces import generation_of, moment, shown_compaction
from weir.storage.interface import ObjectStore

__all__ = ["Snapshots", "checked_name"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")
_LONGEST_COPY = timedelta(hours=1)
_YEARS_KEPT = timedelta(days=3650)
_ATTEMPTS = 8


def checked_name(name: str) -> str:
    """Return the name of a snapshot.

    Raises
    ------
    Refusal
        If none is named so.
    """
    if not _NAME.match(name):
        raise Refusal(400, "invalid_snapshot", "a snapshot is named by letters, digits, '-' and '_'")
    return name


class Snapshots:
    """The snapshots of the namespaces of a root.

    Parameters
    ----------
    store : ObjectStore
        The root.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def get(self, namespace: Namespace, name: str) -> dict[str, Any]:
        """Return a snapshot as stored.

        Raises
        ------
        Refusal
            If there is none of that name.
        """
        known = self._find(namespace, name) if _NAME.match(name) else None
        if known is None:
            raise Refusal(404, "SNAPSHOT_NOT_FOUND", f"snapshot not found: {name:.128}")
        return known

    def of(self, namespace: Namespace) -> list[dict[str, Any]]:
        """Return those of a namespace, by name."""
        namespace.opened()
        place = _path(namespace.name, "")
        found = [
            meta.path.removeprefix(place).removesuffix(".json")
            for meta in self._store.list(place.rstrip("/"))
            if meta.path.endswith(".json")
        ]
        return [known for name in sorted(found) if (known := self._find(namespace, name)) is not None]

    def save(self, namespace: Namespace, name: str) -> dict[str, Any]:
        """Save the current state under a name, if it is not that already.

        Raises
        ------
        Refusal
            If there is another state of that name.
        """

        def same(known: dict[str, Any]) -> dict[str, Any]:
            if known["generation"] != generation:
                raise Refusal(409, "SNAPSHOT_ALREADY_EXISTS", f"snapshot already exists: {name}")
            return known

        for left in reversed(range(_ATTEMPTS)):
            generation = shown_compaction(namespace)["manifest_generation"]
            known = self._find(namespace, name)
            if known is not None:
                return same(known)
            token = namespace.token(_YEARS_KEPT)
            # What was written meanwhile may be part of the state, which is then another one.
            if shown_compaction(namespace)["manifest_generation"] == generation:
                break
            if not left:
                generation = _generation_of(token)
                break
            namespace.release(token)
        stored = {
            "name": name,
            "generation": generation,
            "created_at": moment(datetime.now(UTC)),
            "token": token,
            "table": namespace.definition.table,
        }
        data = json.dumps(stored).encode()
        try:
            self._store.put_if_absent(_path(namespace.name, name), data)
        except ObjectExistsError:
            known = self._find(namespace, name)
            if known is None:  # of a namespace that was deleted since
                self._store.put(_path(namespace.name, name), data)
                return stored
            # Somebody else was faster. What nothing names would be retained for years.
            namespace.release(stored["token"])
            return same(known)
        return stored

    def delete(self, namespace: Namespace, name: str) -> None:
        """Delete a snapshot, and keep nothing for it any more.

        Raises
        ------
        Refusal
            If there is none of that name.
        """
        namespace.release(self.get(namespace, name)["token"])
        self._store.delete([_path(namespace.name, name)])

    @contextmanager
    def state(self, namespace: Namespace, as_of: str) -> Iterator[tuple[int, str]]:
        """Hold the state of a point in time; yield its generation and token."""
        for left in reversed(range(_ATTEMPTS)):
            present = shown_compaction(namespace)["manifest_generation"]
            known = self._as_of(namespace, as_of, present)
            if known is not None:
                yield known["generation"], known["token"]
                return
            token = namespace.token(_LONGEST_COPY)
            try:
                newest = shown_compaction(namespace)["manifest_generation"]
                # What was written meanwhile may be part of the state, which is then another one.
                if newest == present:
                    yield newest, token
                    return
                # A namespace that is written without a pause has a present state too.
                if not left and self._as_of(namespace, as_of, newest) is None:
                    yield _generation_of(token), token
                    return
            finally:
                # It ends by itself too: no reason for a copy that was made to fail.
                with suppress(WeirError):
                    namespace.release(token)
        raise ConflictError("the namespace keeps changing", hint="Try again")

    def _as_of(self, namespace: Namespace, as_of: str, present: int) -> dict[str, Any] | None:
        """Return the snapshot for a point in time; None for the current state."""
        if as_of == "latest":
            return None
        generation = digits(as_of)
        if generation is not None:
            if generation == present:
                return None
            pinned = (one for one in self.of(namespace) if one["generation"] == generation)
            known = next(pinned, None)
            if known is None:
                raise _not_retained(f"generation {generation}")
            return known
        at = _moment_of(as_of)
        if at is not None:
            if at < namespace.opened().updated_at():
                raise _not_retained(as_of)
            return None
        return self.get(namespace, as_of.removeprefix("snapshot:"))

    def _find(self, namespace: Namespace, name: str) -> dict[str, Any] | None:
        try:
            stored = json.loads(bytes(memoryview(self._store.get(_path(namespace.name, name)))))
        except ObjectNotFoundError:
            return None
        # One of a namespace that was deleted since is none of this one.
        return dict(stored) if stored["table"] == namespace.definition.table else None


def _path(namespace: str, name: str) -> str:
    return f"snapshots/{directory_of(namespace)}/" + (f"{name}.json" if name else "")


def _moment_of(text: str) -> datetime | None:
    """Parse a time; None if it is not one."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    if at.tzinfo is None:
        raise InputError("as_of is a moment with its zone")
    return at


def _generation_of(token: str) -> int:
    """Return the generation of a token's state."""
    state = SnapshotToken.parse(token)
    return generation_of(state.base_version, (cut.position for cut in state.shards))


def _not_retained(what: str) -> Refusal:
    return Refusal(410, "POINT_IN_TIME_NOT_RETAINED", f"the state of {what:.80} is not retained")
