"""Stored tags of a table: creating, reading, listing and dropping them.

A tag is stored first, and what it keeps is checked again afterwards: as with the pins of tokens
(:mod:`weir.snapshots.tokens`), either a collection sees the tag, or the tag sees what the collection deletes.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from datetime import UTC, datetime

from weir.base.durability import make_durable
from weir.base.table import BaseTable
from weir.engine.concurrent_map import concurrent_map
from weir.engine.logs import get_logger
from weir.errors import InputError, ObjectExistsError, ObjectNotFoundError, WeirError
from weir.format import tag as stored_tag
from weir.format.snapshot_token import SnapshotToken
from weir.format.tag import TAGS, Tag, is_tag_name, tag_path
from weir.snapshots.expiry import check_readable
from weir.snapshots.roots import tag_root
from weir.snapshots.swept import read_marks, swept_part
from weir.storage.interface import ObjectStore

__all__ = ["create_tag", "drop_tag", "list_tags", "read_tag"]

_log = get_logger(__name__)


def create_tag(base: BaseTable, name: str, token: SnapshotToken) -> Tag:
    """Give a state of a table a name, and keep it from then on.

    Parameters
    ----------
    base : BaseTable
        The base table at any version.
    name : str
        The name.
    token : SnapshotToken
        The state.

    Raises
    ------
    OptionError
        If it cannot be the name of a tag.
    InputError
        If there is a tag of that name.
    SnapshotExpiredError
        If something of the state is gone, or about to go. There is no tag then.
    """
    store, path = base.store, tag_path(name)
    tag = Tag(name, token.unpinned(), datetime.now(UTC), secrets.token_hex(16))
    # Plain Lance may have committed the version: with the power it would go.
    make_durable(store, token.base_version)
    try:
        store.put_if_absent(path, stored_tag.encode(tag))
    except ObjectExistsError as error:
        found = read_tag(store, name)
        if found is None or found.write_id != tag.write_id:
            raise InputError(
                f"the table already has a tag {name!r}"
                + ("" if found is None else f", of {found.created_at:%Y-%m-%d %H:%M:%S} UTC"),
                where="name",
                hint=f"Choose another name, or drop it first: table.tags.drop({name!r})",
            ) from error
        # The answer was lost (invariant I4).
    try:
        _refuse_what_goes(base, tag)
    except BaseException:
        with suppress(WeirError):
            store.delete([path])
        raise
    _log.info("table.tag_created", tag=name, version=token.base_version)
    return tag


def _refuse_what_goes(base: BaseTable, tag: Tag) -> None:
    marks = read_marks(base.store)
    error = swept_part(base, tag_root(tag), marks)
    if error is not None:
        raise error
    check_readable(base.store, tag.token)


def read_tag(store: ObjectStore, name: str) -> Tag | None:
    """Return a tag, or None if it does not exist. Takes one round trip.

    Raises
    ------
    CorruptionError
        If the stored object is damaged.
    """
    path = tag_path(name)
    try:
        data = store.get(path)
    except ObjectNotFoundError:
        return None
    return stored_tag.decode(data, where=f"{store.uri}/{path}")


def list_tags(store: ObjectStore) -> list[Tag]:
    """Return all tags, by name. A listing, and a round trip for each.

    Raises
    ------
    CorruptionError
        If one is not what was written.
    """
    names = {meta.path.removeprefix(f"{TAGS}/").removesuffix(".json") for meta in store.list(TAGS)}
    known = sorted(name for name in names if is_tag_name(name))
    found = concurrent_map(
        lambda name: read_tag(store, name), known, is_local=store.is_local, engine=store.engine
    )
    return [tag for tag in found if tag is not None]


def drop_tag(store: ObjectStore, name: str) -> None:
    """Forget a tag, so that nothing is kept for it. One that does not exist is no error."""
    store.delete([tag_path(name)])
    _log.info("table.tag_dropped", tag=name)
