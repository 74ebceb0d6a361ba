"""The protocol of the first MemWAL index, in random order, against a model of lists; refusals by name."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.first_index.kit import first_table, mem_wal

from weir.errors import FencedError, InputError
from weir.first_index import protocol
from weir.first_index.commit import commit_regions, newest_manifest
from weir.first_index.view import regions_of
from weir.format import first_index_details
from weir.format.first_index_details import FirstIndexDetails, MemWal, MemWalState

OPEN, SEALED, FLUSHED, MERGED = MemWalState
ORDER = ["OPEN", "SEALED", "FLUSHED", "MERGED"]


@dataclass
class Model:
    """A region: of each generation its state, owner, entries and last version, as lists say it."""

    generations: list[dict[str, object]] = field(default_factory=list)

    def apply(self, step: str, generation: int, owner: str, entry: int, version: int) -> str | None:
        """Do a step; return why it is refused, or None."""
        if step == "open":
            if self.generations and self.generations[-1]["state"] == "OPEN":
                return "open"
            self.generations.append({"state": "OPEN", "owner": owner, "entries": [], "version": version})
            return None
        if generation >= len(self.generations):
            return "none"
        one = self.generations[generation]
        if step == "claim":
            one |= {"owner": owner, "version": version}
            return None
        if one["owner"] != owner:
            return "fenced"
        entries = one["entries"]
        assert isinstance(entries, list)
        if step == "entry":
            if one["state"] != "OPEN" or (entries and entry <= entries[-1]):
                return "refused"
            entries.append(entry)
        else:
            target = {"seal": "SEALED", "flush": "FLUSHED", "merge": "MERGED"}[step]
            older = [ORDER.index(str(each["state"])) for each in self.generations[:generation]]
            at = ORDER.index(target)
            if one["state"] != ORDER[at - 1] or any(each < at for each in older):
                return "refused"
            one["state"] = target
        one["version"] = version
        if step == "seal":
            self.generations.append({"state": "OPEN", "owner": owner, "entries": [], "version": version})
        return None


def take(
    details: FirstIndexDetails, step: str, region: str, generation: int, owner: str, entry: int, version: int
) -> FirstIndexDetails:
    places = {"wal_location": f"{region}/{version}", "mem_table_location": "memory://0"}
    if step == "open":
        return protocol.opened(details, region, owner, version=version, **places)
    if step == "claim":
        expected = [one for one in details.mem_wals if (one.region, one.generation) == (region, generation)]
        if not expected:
            raise InputError("nothing to claim")
        return protocol.claimed(details, expected, owner, version=version)
    if step == "entry":
        return protocol.with_entry(details, region, generation, owner, entry, version=version)
    if step == "seal":
        return protocol.sealed_and_opened(details, region, generation, owner, version=version, **places)
    move = protocol.flushed if step == "flush" else protocol.merged
    return move(details, region, generation, owner, version=version)


@pytest.mark.parametrize("seed", range(6))
def test_steps_in_random_order_do_what_lists_do(seed: int) -> None:
    draw = random.Random(seed)
    details, models = FirstIndexDetails(), {"eu": Model(), "us": Model()}
    steps = ["open", "claim", "entry", "entry", "entry", "seal", "flush", "merge"]
    done = dict.fromkeys(steps, 0)
    for version in range(2, 250):
        region, step = draw.choice(["eu", "us"]), draw.choice(steps)
        model = models[region]
        generation = max(len(model.generations) - draw.choice([0, 1, 1, 1, 2, 3]), 0)
        waits = {"flush": "SEALED", "merge": "FLUSHED"}.get(step)
        if waits and draw.random() < 0.6:
            # The oldest that is due; of a random one there is most often an older one in the way.
            due = [at for at, one in enumerate(model.generations) if one["state"] == waits]
            generation = min(due, default=generation)
        # Most often the owner, sometimes somebody else.
        owner = draw.choice(["a", "b"])
        if step not in ("open", "claim") and generation < len(model.generations) and draw.random() < 0.8:
            owner = str(model.generations[generation]["owner"])
        entry = draw.randrange(60)
        refused = model.apply(step, generation, owner, entry, version)
        if refused is None:
            details = take(details, step, region, generation, owner, entry, version)
            done[step] += 1
        else:
            with pytest.raises(FencedError if refused == "fenced" else InputError):
                take(details, step, region, generation, owner, entry, version)
        details = first_index_details.decode(first_index_details.encode(details), where="here")
        for name, each in models.items():
            found = [one for one in details.mem_wals if one.region == name]
            assert [
                {
                    "state": one.state.name,
                    "owner": one.owner_id,
                    "entries": list(one.entries),
                    "version": one.last_updated_dataset_version,
                }
                for one in found
            ] == each.generations
            assert [one.generation for one in found] == list(range(len(found)))
    assert all(done.values())


@pytest.mark.parametrize(
    ("before", "step", "message"),
    [
        (mem_wal("eu", 0, OPEN), "open", "has only one at a time"),
        (mem_wal("eu", 0, SEALED), "entry", "is SEALED and takes no entries"),
        (mem_wal("eu", 0, SEALED), "seal", "is SEALED and cannot become SEALED"),
        (mem_wal("eu", 0, OPEN), "flush", "is OPEN and cannot become FLUSHED"),
        (mem_wal("eu", 0, SEALED), "merge", "is SEALED and cannot become MERGED"),
        (mem_wal("eu", 0, MERGED), "flush", "is MERGED and cannot become FLUSHED"),
        (mem_wal("us", 0, OPEN), "flush", "no generation 0 of region 'eu'"),
    ],
)
def test_refusals_say_what_it_is_about(before: MemWal, step: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        take(FirstIndexDetails((before,)), step, "eu", 0, "owner", 0, 5)


def test_of_two_who_claim_at_once_one_wins(tmp_path: Path) -> None:
    """The loser of the race reads the winner's version, in which the owner is not the one it expects."""
    store = first_table(tmp_path, [(1, "a")], [(mem_wal("eu", 0, OPEN), [])])
    read = regions_of(newest_manifest(store))
    assert read is not None

    def claim(owner: str) -> int:
        version, _ = commit_regions(
            store, lambda details, at: protocol.claimed(details, read.mem_wals, owner, version=at)
        )
        return version

    won = claim("first")
    with pytest.raises(FencedError, match="belongs to 'first', no longer to 'owner'"):
        claim("second")
    found = regions_of(newest_manifest(store))
    assert found is not None
    assert [(one.owner_id, one.last_updated_dataset_version) for one in found.mem_wals] == [("first", won)]
    assert newest_manifest(store).version == won


def test_no_step_moves_a_wal() -> None:
    """The location of a WAL is that of its MemWAL for good; another owner has the MemTable elsewhere."""
    details = FirstIndexDetails((mem_wal("eu", 0, OPEN, wal_location="here", mem_table_location="there"),))
    own = details.mem_wals
    claims = protocol.claimed(details, own, "b", version=3, mem_table_location="memory://b")
    steps = [claims, protocol.with_entry(claims, "eu", 0, "b", 4, version=4)]
    steps.append(take(steps[-1], "seal", "eu", 0, "b", 0, 5))
    steps.append(protocol.flushed(steps[-1], "eu", 0, "b", version=6, mem_table_location="on storage"))
    # Who claims what is flushed has not its rows in memory.
    flushed = next(one for one in steps[-1].mem_wals if one.generation == 0)
    steps.append(protocol.claimed(steps[-1], [flushed], "c", version=7, mem_table_location="memory://c"))
    steps.append(take(steps[-1], "merge", "eu", 0, "c", 0, 8))
    found = [next(one for one in each.mem_wals if one.generation == 0) for each in steps]
    assert {one.wal_location for one in found} == {"here"}
    assert [one.mem_table_location for one in found] == ["memory://b"] * 3 + ["on storage"] * 3
    assert [one.last_updated_dataset_version for one in found] == [3, 4, 5, 6, 7, 8]
