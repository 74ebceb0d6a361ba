"""Whether a manifest that was just put is in its place, and whether one that is read is the newest.

Others may have slept as well, and have put theirs where nobody looks; a listing takes a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from weir.format import layout, shard_manifest, version_hint
from weir.format.buffers import Bytes
from weir.format.shard_manifest import ShardManifest
from weir.format.version_hint import VersionHint
from weir.log.manifest_store import (
    commit_manifest,
    read_latest_manifest,
    read_manifest_version,
    update_manifest,
)
from weir.storage.interface import ObjectMeta
from weir.storage.local import LocalStore

SHARD = UUID(int=7)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path, fsync=False)


def committed(store: LocalStore, last: int) -> list[ShardManifest]:
    """Commit versions up to ``last``, each with its version as epoch, and return them."""
    made: list[ShardManifest] = []
    for version in range(1, last + 1):
        manifest = ShardManifest(SHARD, version, writer_epoch=version)
        published = commit_manifest(store, manifest, after=made[-1] if made else None)
        assert published is not None
        made.append(published)
    return made


def collect(store: LocalStore, *versions: int) -> None:
    store.delete([layout.manifest_path(SHARD, version) for version in versions])


def leave_stray(store: LocalStore, version: int) -> ShardManifest:
    """Put a manifest where one was collected, as a process does that slept and dies before it looks."""
    stray = ShardManifest(SHARD, version, writer_epoch=1000 + version, write_id=b"stray %d" % version)
    store.put_if_absent(layout.manifest_path(SHARD, version), shard_manifest.encode(stray))
    return stray


def versions(store: LocalStore) -> list[int]:
    names = (one.path.rsplit("/", 1)[-1] for one in store.list(layout.manifest_directory(SHARD)))
    return sorted(layout.parse_manifest_name(name) for name in names if name.endswith(".binpb"))


def test_a_first_manifest_that_others_have_gone_on_from_stays(store: LocalStore, tmp_path: Path) -> None:
    """The listing passes the name of the second before that is there, and ends after the third is."""

    class ListsWhileOthersGoOn(LocalStore):
        def list(self, prefix: str) -> Sequence[ObjectMeta]:
            newest = read_manifest_version(store, SHARD, 1)
            for version in (2, 3):
                newest = commit_manifest(store, ShardManifest(SHARD, version), after=newest)
            second = layout.manifest_path(SHARD, 2)
            return [one for one in super().list(prefix) if one.path != second]

    slow = ListsWhileOthersGoOn(tmp_path, fsync=False)
    commit_manifest(slow, ShardManifest(SHARD, 1), after=None)
    assert versions(store) == [1, 2, 3]


def test_a_manifest_where_nobody_looks_is_taken_back(store: LocalStore) -> None:
    first, *_ = committed(store, 4)
    collect(store, 1, 2, 3)
    assert commit_manifest(store, ShardManifest(SHARD, 2), after=first) is None
    assert versions(store) == [4]


def test_a_manifest_that_follows_a_stray_one_is_not_in_line(store: LocalStore) -> None:
    """Two have slept: one has put its manifest and not looked yet, the other goes on from its version."""
    _, second, *_ = committed(store, 9)
    collect(store, 1, 2, 3, 4, 5, 6)
    leave_stray(store, 2)
    assert commit_manifest(store, ShardManifest(SHARD, 3), after=second) is None
    assert versions(store) == [2, 7, 8, 9]


def test_who_slept_changes_the_newest_manifest_though_strays_stand_where_it_was(store: LocalStore) -> None:
    _, second, *_ = committed(store, 9)
    collect(store, 1, 2, 3, 4, 5, 6)
    leave_stray(store, 2)
    leave_stray(store, 3)
    changed = update_manifest(
        store, SHARD, lambda newest: replace(newest, status=newest.status), known=second
    )
    assert (changed.version, changed.writer_epoch) == (10, 9)
    assert versions(store) == [2, 3, 7, 8, 9, 10]


@pytest.mark.parametrize("strays", [(2,), (2, 3), (3,), (1, 2, 3, 4), (5,)])
def test_a_stray_manifest_is_never_the_newest(store: LocalStore, strays: tuple[int, ...]) -> None:
    made = committed(store, 9)
    hints = [version_hint.encode(VersionHint(one.version, one.write_id)) for one in made]
    collect(store, 1, 2, 3, 4, 5, 6)
    for version in strays:
        leave_stray(store, version)
    for known in made:
        assert read_latest_manifest(store, SHARD, known=known) == made[-1]
    # A hint may be written late, by whoever sleeps before it writes it; the library's has no stamp.
    for hint in (*hints, *(version_hint.encode(VersionHint(version)) for version in range(1, 12))):
        store.put(layout.version_hint_path(SHARD), hint)
        assert read_latest_manifest(store, SHARD) == made[-1]
    store.delete([layout.version_hint_path(SHARD)])
    assert read_latest_manifest(store, SHARD) == made[-1]


def test_a_reader_that_sleeps_before_it_looks_back_finds_the_newest(
    store: LocalStore, tmp_path: Path
) -> None:
    """It knows the third, finds no fourth because that has been collected, and a stray third."""
    made = committed(store, 3)

    class Sleeps(LocalStore):
        def get(self, path: str) -> Bytes:
            if path == layout.manifest_path(SHARD, 4) and read_manifest_version(store, SHARD, 3) is not None:
                newest = made[-1]
                for version in range(4, 10):
                    following = commit_manifest(store, ShardManifest(SHARD, version), after=newest)
                    assert following is not None
                    newest = following
                collect(store, *range(1, 9))
                made.append(newest)
                leave_stray(store, 3)
            return super().get(path)

    slow = Sleeps(tmp_path, fsync=False)
    found = read_latest_manifest(slow, SHARD, known=made[2])
    assert found == made[-1]
    assert found.version == 9
