"""Verifying one shard: its manifests, log and lease, and anything else in its directory.

One listing, then the newest manifest, then every other one, then the log. So whatever the listing showed
was there before the manifest that it is compared with was read: what has been written since can make
nothing look wrong that was right. What garbage collection deletes meanwhile can; such a shard is looked at
again.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, pairwise
from uuid import UUID

from weir.errors import CorruptionError, InputError, ShardingError
from weir.format import layout, lease, shard_manifest, version_hint
from weir.format.shard_manifest import FlushedGeneration, ShardManifest
from weir.format.shard_snapshot import from_table, to_table
from weir.log.manifest_store import read_latest_manifest
from weir.maintenance.verification.facts import Need, ShardFacts, TableFacts
from weir.maintenance.verification.finding import Finding, Findings
from weir.maintenance.verification.log import check_log
from weir.maintenance.verification.objects import ShardObjects, file_of, get_or_none, read_many
from weir.sharding.shard_values import ShardValues
from weir.snapshots.capture import is_cut_of

__all__ = ["ShardCheck", "ShardResult", "check_shard"]


@dataclass(frozen=True, slots=True)
class ShardCheck:
    """The task of checking a shard. Picklable.

    Parameters
    ----------
    table : TableFacts
        The table.
    shard : ShardFacts
        What the rest of the table says of the shard.
    """

    table: TableFacts
    shard: ShardFacts


@dataclass(frozen=True, slots=True)
class ShardResult:
    """What the check of a shard found.

    Parameters
    ----------
    shard_id : UUID
        The shard.
    findings : tuple of Finding
        What is wrong.
    manifest : ShardManifest or None
        Its newest manifest, as far as that can be read.
    entries : int
        Log entries that were read.
    """

    shard_id: UUID
    findings: tuple[Finding, ...]
    manifest: ShardManifest | None
    entries: int

    @property
    def generations(self) -> tuple[FlushedGeneration, ...]:
        """The generations that the newest manifest lists."""
        return () if self.manifest is None else self.manifest.flushed_generations


def check_shard(check: ShardCheck) -> ShardResult:
    """Check a shard, apart from what is inside its generations."""
    table, shard = check.table, check.shard
    shard_id = shard.shard_id
    findings = Findings(table.store.uri, shard_id)
    listed = table.store.list(layout.shard_directory(shard_id))
    objects = ShardObjects.of([one.path for one in listed], shard_id)
    for path in objects.unknown:
        findings.warning("shard.unknown_object", path, "the format knows no object of this name")
    _check_lease(table, shard_id, objects, findings)
    if not objects.manifests:
        if objects.log or objects.directories:
            findings.error(
                "manifest.missing",
                layout.manifest_directory(shard_id),
                "the shard has rows and no manifest, so that nobody reads them",
            )
        return ShardResult(shard_id, tuple(findings.found), None, 0)
    manifests = _check_manifests(table, shard, objects, findings)
    newest = manifests[max(manifests)] if manifests else None
    entries = 0
    if newest is not None:
        _check_generations(shard, newest, objects, findings)
        _check_values(table, newest, findings)
        _check_published(shard, manifests, newest, findings)
        _check_marks(shard, newest, findings)
        _check_needs(shard, manifests, objects, findings)
        entries = check_log(table, newest, objects, findings)
    return ShardResult(shard_id, tuple(findings.found), newest, entries)


def _check_lease(table: TableFacts, shard_id: UUID, objects: ShardObjects, findings: Findings) -> None:
    path = layout.lease_path(shard_id)
    data = get_or_none(table.store, path) if path in objects.single else None
    if data is None:
        return
    try:
        held = lease.decode(data, where=path)
    except CorruptionError as error:
        findings.error("lease.unreadable", file_of(table.store, path), error.message)
        return
    if held.shard_id != shard_id:
        findings.error("lease.shard", path, f"the lease is of the shard {held.shard_id}")
    if not held.acquired_at <= held.renewed_at <= held.expires_at:
        findings.error("lease.times", path, "the lease was not acquired, renewed and expires in this order")


def _check_manifests(
    table: TableFacts, shard: ShardFacts, objects: ShardObjects, findings: Findings
) -> dict[int, ShardManifest]:
    """Read and check every manifest there is; return those that can be read, by version."""
    found: dict[int, ShardManifest] = {}
    paths = {path: version for version, path in sorted(objects.manifests.items())}
    for path, data in read_many(table.store, paths):
        if data is None:
            continue  # collected since it was listed
        try:
            manifest = shard_manifest.decode(data, where=path)
        except CorruptionError as error:
            findings.error("manifest.unreadable", path, error.message)
            continue
        if manifest.version != paths[path] or manifest.shard_id != shard.shard_id:
            findings.error(
                "manifest.name",
                path,
                f"the manifest says that it is version {manifest.version} of shard {manifest.shard_id}",
            )
            continue
        found[manifest.version] = manifest
    _follow(table, shard, objects, found, findings)
    for before, after in pairwise(sorted(objects.manifests)):
        if after != before + 1:
            findings.error(
                "manifest.gap",
                layout.manifest_path(shard.shard_id, before + 1),
                f"there is no version {before + 1}, and there is a version {after}",
            )
    for older, newer in pairwise(found[version] for version in sorted(found)):
        _check_order(shard, older, newer, findings)
    _check_hint(table, shard, objects, found, findings)
    return found


def _follow(
    table: TableFacts,
    shard: ShardFacts,
    objects: ShardObjects,
    found: dict[int, ShardManifest],
    findings: Findings,
) -> None:
    """Add the manifests written since the listing."""
    if not found or max(found) != max(objects.manifests):
        return
    try:
        newest = read_latest_manifest(table.store, shard.shard_id, known=found[max(found)])
    except CorruptionError as error:
        findings.error("manifest.unreadable", _relative(error.where, table), error.message)
        return
    if newest is not None:
        found[newest.version] = newest


def _relative(where: str | None, table: TableFacts) -> str:
    return (where or "").removeprefix(f"{table.store.uri}/")


def _check_order(shard: ShardFacts, before: ShardManifest, after: ShardManifest, findings: Findings) -> None:
    path = layout.manifest_path(shard.shard_id, after.version)
    for name in ("writer_epoch", "replay_after_wal_entry_position", "current_generation"):
        old, new = getattr(before, name), getattr(after, name)
        if new < old:
            findings.error(
                "manifest.backwards",
                path,
                f"{name} goes back from {old} in version {before.version} to {new} in {after.version}",
            )


def _check_hint(
    table: TableFacts,
    shard: ShardFacts,
    objects: ShardObjects,
    found: dict[int, ShardManifest],
    findings: Findings,
) -> None:
    path = layout.version_hint_path(shard.shard_id)
    data = get_or_none(table.store, path)
    newest = max([*found, *objects.manifests])
    if data is None:
        findings.warning("manifest.hint", path, f"there is no version hint; the newest version is {newest}")
        return
    hint = version_hint.decode(data)
    if hint is None:
        findings.warning("manifest.hint", path, "the version hint cannot be read")
        return
    at = hint.version
    if at < newest:
        findings.warning("manifest.hint", path, f"the hint is at version {at}, the newest is {newest}")
    elif at > newest and get_or_none(table.store, layout.manifest_path(shard.shard_id, at)) is None:
        if hint.proved:
            # Written after its manifest, and the newest is never collected: readers refuse it too.
            gone = layout.manifest_path(shard.shard_id, at)
            findings.error("manifest.lost", gone, f"the version hint was written when it was there: {path}")
            return
        findings.warning("manifest.hint", path, f"the hint is at version {at}, which does not exist")


def _check_generations(
    shard: ShardFacts, newest: ShardManifest, objects: ShardObjects, findings: Findings
) -> None:
    path = layout.manifest_path(shard.shard_id, newest.version)
    numbers = [one.generation for one in newest.flushed_generations]
    if numbers != sorted(set(numbers)):
        findings.error("generation.order", path, f"the generations {numbers} are not in ascending order")
    for one in newest.flushed_generations:
        if not layout.is_staged_name(one.path) and _number(one.path) != one.generation:
            findings.error("generation.name", path, f"generation {one.generation} is in {one.path!r}")
        if one.generation >= newest.current_generation:
            findings.error(
                "generation.number",
                path,
                f"generation {one.generation} is listed, and {newest.current_generation} is the next to be",
            )
    if shard.merged >= newest.current_generation:
        findings.error(
            "generation.merged",
            path,
            f"generation {shard.merged} is recorded as merged, and none above "
            f"{newest.current_generation - 1} was flushed",
        )
    unmerged = {number for number in numbers if shard.merged < number < newest.current_generation}
    missing = max(newest.current_generation - 1 - shard.merged, 0) - len(unmerged)
    if missing:
        first = next(number for number in count(shard.merged + 1) if number not in unmerged)
        findings.error(
            "generation.lost",
            path,
            f"generation {first} is neither merged nor listed"
            + (f", nor are {missing - 1} others" if missing > 1 else ""),
        )
    listed = {one.path for one in newest.flushed_generations}
    for name, number in objects.directories.items():
        unfinished = number >= newest.current_generation
        if name not in listed and not unfinished and name not in shard.marks.directories:
            findings.warning(
                "generation.orphan",
                layout.generation_path(shard.shard_id, name),
                "no manifest lists the generation, and garbage collection has not marked it",
            )


def _number(name: str) -> int | None:
    try:
        return layout.parse_generation_name(name)
    except InputError:
        return None


def _check_values(table: TableFacts, newest: ShardManifest, findings: Findings) -> None:
    path = layout.manifest_path(newest.shard_id, newest.version)
    spec = table.specs.get(newest.shard_spec_id)
    if spec is None:
        if newest.shard_spec_id:
            findings.warning(
                "shard.spec",
                path,
                f"the table has no shard spec {newest.shard_spec_id}, which it was made with",
            )
        return
    try:
        ShardValues.from_manifest(newest.shard_fields, spec)
    except (CorruptionError, ShardingError) as error:
        findings.error("shard.values", path, error.message)


def _check_published(
    shard: ShardFacts,
    manifests: dict[int, ShardManifest],
    newest: ShardManifest,
    findings: Findings,
) -> None:
    published = shard.published
    if published is None:
        return
    path = layout.manifest_path(shard.shard_id, published.version)
    if published.version > newest.version:
        findings.error(
            "snapshot.ahead",
            path,
            f"the shard snapshot has version {published.version}, the newest manifest is {newest.version}",
        )
        return
    manifest = manifests.get(published.version)
    if manifest is None:
        return  # collected
    # A value that the snapshot cannot hold is left out of it.
    (plain,) = from_table(to_table([manifest]), where=path)
    foreign = set(published.shard_fields) - set(plain.shard_fields)
    if foreign or _without_values(plain) != _without_values(published):
        findings.error("snapshot.differs", path, "the shard snapshot says something else than the manifest")


def _without_values(manifest: ShardManifest) -> ShardManifest:
    return ShardManifest(
        manifest.shard_id,
        manifest.version,
        manifest.writer_epoch,
        manifest.replay_after_wal_entry_position,
        manifest.wal_entry_position_last_seen,
        manifest.current_generation,
        manifest.flushed_generations,
        manifest.shard_spec_id,
    )


def _check_marks(shard: ShardFacts, newest: ShardManifest, findings: Findings) -> None:
    listed = {one.path for one in newest.flushed_generations}
    for name in shard.marks.directories:
        if name in listed:
            findings.error(
                "marks.needed",
                layout.generation_path(shard.shard_id, name),
                "garbage collection has marked a generation that the newest manifest lists",
            )
    covered = newest.replay_after_wal_entry_position
    for step in shard.marks.wal:
        if step.up_to > covered:
            findings.error(
                "marks.needed",
                layout.wal_path(shard.shard_id, step.up_to),
                f"garbage collection has marked the log up to position {step.up_to}, and generations "
                f"cover it up to {covered} only",
            )
    for step in shard.marks.manifests:
        if step.up_to >= newest.version:
            findings.error(
                "marks.needed",
                layout.manifest_path(shard.shard_id, step.up_to),
                f"garbage collection has marked manifests up to version {step.up_to}, and the newest is "
                f"{newest.version}",
            )


def _check_needs(
    shard: ShardFacts, manifests: dict[int, ShardManifest], objects: ShardObjects, findings: Findings
) -> None:
    for need in shard.needs:
        version = None if need.cut is None else need.cut.manifest_version
        # One that is damaged has been reported as that.
        manifest = None if version is None else manifests.get(version)
        is_another = need.cut is not None and manifest is not None and not is_cut_of(need.cut, manifest)
        if is_another or (version is not None and version not in objects.manifests):
            findings.error(
                "token.expired",
                need.path,
                f"the token needs version {version} of the manifest of shard {shard.shard_id}, which is gone"
                + (", and another is in its place" if is_another else ""),
            )
        elif manifest is not None and need.merged is not None:
            _check_needed_generations(need, need.merged, manifest, objects, findings)
        positions = range(max(need.first_position, 1), need.last_position + 1)
        gone = next((position for position in positions if position not in objects.log), None)
        if gone is not None:
            findings.error(
                "token.expired",
                need.path,
                f"the token needs the log of shard {shard.shard_id} at position {gone}, which is gone",
            )


def _check_needed_generations(
    need: Need, merged: int, manifest: ShardManifest, objects: ShardObjects, findings: Findings
) -> None:
    for one in manifest.flushed_generations:
        if one.generation > merged and one.path not in objects.directories:
            findings.error(
                "token.expired",
                need.path,
                f"the token needs generation {one.generation} of shard {manifest.shard_id}, which is gone",
            )
            return
