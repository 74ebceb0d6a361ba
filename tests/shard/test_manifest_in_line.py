"""Whether a manifest that was just put is in its place, as a listing shows it that takes a while."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from weir.format import layout
from weir.format.shard_manifest import ShardManifest
from weir.shard.manifest_store import commit_manifest, read_manifest_version
from weir.storage.interface import ObjectMeta
from weir.storage.local import LocalStore

SHARD = UUID(int=7)


def test_a_first_manifest_that_others_have_gone_on_from_stays(tmp_path: Path) -> None:
    """The listing passes the name of the second before that is there, and ends after the third is."""
    store = LocalStore(tmp_path, fsync=False)

    class ListsWhileOthersGoOn(LocalStore):
        def list(self, prefix: str) -> Sequence[ObjectMeta]:
            for version in (2, 3):
                assert commit_manifest(store, ShardManifest(SHARD, version)) is not None
            second = layout.manifest_path(SHARD, 2)
            return [one for one in super().list(prefix) if one.path != second]

    slow = ListsWhileOthersGoOn(tmp_path, fsync=False)
    commit_manifest(slow, ShardManifest(SHARD, 1))
    assert [version for version in (1, 2, 3) if read_manifest_version(store, SHARD, version)] == [1, 2, 3]


def test_a_manifest_where_nobody_looks_is_taken_back(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, fsync=False)
    for version in (1, 2, 3, 4):
        assert commit_manifest(store, ShardManifest(SHARD, version)) is not None
    store.delete([layout.manifest_path(SHARD, version) for version in (1, 2, 3)])
    assert commit_manifest(store, ShardManifest(SHARD, 2)) is None
    assert read_manifest_version(store, SHARD, 2) is None
