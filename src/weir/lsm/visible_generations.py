"""The point from which published generations are visible: the log entry that names them, for every reader.

The manifest that lists them exists slightly earlier, or, if the writer died in between, until the shard is
claimed. A reader of the manifest must not show rows that readers of the log do not see.
"""

from __future__ import annotations

from dataclasses import replace

from weir.format.shard_manifest import ShardManifest

__all__ = ["visible_generations"]


def visible_generations(manifest: ShardManifest, position: int) -> ShardManifest:
    """Return a manifest without the generations that the log up to a position does not name yet.

    Parameters
    ----------
    manifest : ShardManifest
        A manifest of a shard.
    position : int
        The last log position that counts.
    """
    counting = tuple(
        one
        for one in manifest.flushed_generations
        if one.published_after is None or one.published_after < position
    )
    # Nothing is flushed before they are named: they are the newest.
    waiting = len(manifest.flushed_generations) - len(counting)
    if not waiting:
        return manifest
    return replace(
        manifest, current_generation=manifest.current_generation - waiting, flushed_generations=counting
    )
