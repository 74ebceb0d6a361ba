"""Writers of regions in random order, some of them fenced, some dead on the way, against dicts."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from tests.first_index.kit import first_table, mem_wal, rows_in

import weir
from weir.engine import failpoint
from weir.engine.failpoint import FailpointError
from weir.errors import FencedError
from weir.first_index.commit import newest_manifest
from weir.first_index.view import base_of, base_only, regions_of
from weir.first_index.writer import RegionWriter
from weir.format.first_index_details import MemWalState

KEYS = {"eu": range(10), "us": range(10, 20)}
"""Of each region: regions that share keys have no order among them."""


@dataclass
class Generation:
    """A MemWAL, as a dict: None deletes."""

    state: str = "OPEN"
    entries: list[int] = field(default_factory=list)
    rows: dict[int, str | None] = field(default_factory=dict)


class Regions(RuleBasedStateMachine):
    """A table whose regions are claimed, written, sealed, flushed and merged, by whoever owns them or not."""

    writers = Bundle("writers")

    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="weir-regions-"))
        self.store = first_table(
            self.directory, [(3, "base"), (12, "base")], [(mem_wal("eu", 0, MemWalState.OPEN), [])]
        )
        self.table = weir.open(self.store.uri)
        self.base = {3: "base", 12: "base"}
        self.regions: dict[str, list[Generation]] = {"eu": [Generation()], "us": []}
        self.owner: dict[str, RegionWriter | None] = {"eu": None, "us": None}
        self.value = 0

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.read()
            # Without the rows of the base table, which have been compared: they take a process.
            assert self.table.maintenance.verify(base_rows=False).findings == ()
            weir.upgrade(self.store.uri)
            assert rows_in(weir.open(self.store.uri)) == self.expected()
            shutil.rmtree(self.directory)

    def expected(self) -> dict[int, str]:
        rows: dict[int, str | None] = dict(self.base)
        for generations in self.regions.values():
            for one in generations:
                if one.state != "MERGED":
                    rows |= one.rows
        return {key: value for key, value in rows.items() if value is not None}

    def do(self, writer: RegionWriter, step: Callable[[], Any]) -> Any:
        """Do a step; None if the writer is fenced, as it has to be if it is not the owner."""
        if self.owner[writer.region] is writer:
            return step()
        with pytest.raises(FencedError):
            step()
        return None

    @rule(target=writers, region=st.sampled_from(["eu", "us"]))
    def claim(self, region: str) -> RegionWriter:
        writer = RegionWriter.claim(self.store, region, seal_rows=1000)
        self.owner[region] = writer
        self.regions[region] = self.regions[region] or [Generation()]
        return writer

    @rule(writer=writers, keys=st.lists(st.integers(0, 9), min_size=1, max_size=4), delete=st.booleans())
    def write(self, writer: RegionWriter, keys: list[int], delete: bool) -> None:
        rows: dict[int, str | None] = {}
        listed = []
        for key in keys:
            self.value += 1
            listed.append({"id": KEYS[writer.region][key], "value": f"v{self.value}"})
            rows[KEYS[writer.region][key]] = None if delete else f"v{self.value}"
        if delete:
            write = self.do(writer, lambda: writer.delete([row["id"] for row in listed]))
        else:
            write = self.do(writer, lambda: writer.upsert(listed))
        if write is not None:
            newest = self.regions[writer.region][-1]
            assert write.generation == len(self.regions[writer.region]) - 1
            assert write.entry > max(newest.entries, default=-1)
            newest.entries.append(write.entry)
            newest.rows |= rows

    @rule(
        writer=consumes(writers),
        place=st.sampled_from(["region.before_entry", "region.after_entry", "region.before_seal"]),
    )
    def die(self, writer: RegionWriter, place: str) -> None:
        """Die on the way: nobody hears of the writer again, and what it was about to do is not done."""
        if self.owner[writer.region] is not writer:
            return
        key = KEYS[writer.region][0]

        def write_and_seal() -> None:
            writer.upsert([{"id": key, "value": "before it died"}])
            writer.seal()

        with failpoint.armed(place, "raise"), pytest.raises(FailpointError):
            write_and_seal()
        if place == "region.before_seal":
            newest = self.regions[writer.region][-1]
            newest.entries.append(list(writer.mem_wals[-1].entries)[-1])
            newest.rows[key] = "before it died"

    @rule(writer=writers)
    def seal(self, writer: RegionWriter) -> None:
        if self.do(writer, writer.seal) is not None:
            self.regions[writer.region][-1].state = "SEALED"
            self.regions[writer.region].append(Generation())

    @rule(writer=writers)
    def flush(self, writer: RegionWriter) -> None:
        sealed = [one for one in self.regions[writer.region] if one.state == "SEALED"]
        if self.owner[writer.region] is writer or self.knows(writer, "SEALED"):
            done = self.do(writer, writer.flush)
            assert done in (None, len(sealed))
            for one in sealed if done is not None else ():
                one.state = "FLUSHED"

    @rule(writer=writers)
    def merge(self, writer: RegionWriter) -> None:
        flushed = [one for one in self.regions[writer.region] if one.state == "FLUSHED"]
        if self.owner[writer.region] is writer or self.knows(writer, "FLUSHED"):
            done = self.do(writer, writer.merge)
            assert done in (None, len(flushed))
            for one in flushed if done is not None else ():
                one.state = "MERGED"
                for key, value in one.rows.items():
                    if value is None:
                        self.base.pop(key, None)
                    else:
                        self.base[key] = value

    def knows(self, writer: RegionWriter, state: str) -> bool:
        """Whether a writer that is fenced has something to do there, by what it knows."""
        return any(one.state.name == state for one in writer.mem_wals)

    @rule(writer=writers)
    def clean_up(self, writer: RegionWriter) -> None:
        if self.owner[writer.region] is writer:
            writer.clean_up()

    @rule()
    def read(self) -> None:
        assert rows_in(self.table) == self.expected()
        view = base_only(self.store)
        assert view is not None
        stored = base_of(view).dataset.to_table().to_pylist()
        assert sorted((row["id"], row["value"]) for row in stored) == sorted(self.base.items())

    @invariant()
    def details_are_those_of_the_model(self) -> None:
        if not hasattr(self, "store"):
            return
        manifest = newest_manifest(self.store)
        details = regions_of(manifest)
        assert details is not None
        for region, generations in self.regions.items():
            own = [one for one in details.mem_wals if one.region == region]
            assert [one.generation for one in own] == list(range(len(own)))
            assert [(one.state.name, list(one.entries)) for one in own] == [
                (one.state, one.entries) for one in generations
            ]
            owner = self.owner[region]
            if owner is not None:
                assert {one.owner_id for one in own if one.state is not MemWalState.MERGED} == {owner.owner}
            assert all(one.last_updated_dataset_version <= manifest.version for one in own)


@pytest.mark.hypothesis
def test_regions_equal_dicts() -> None:
    examples = settings().max_examples // 4
    run_state_machine_as_test(Regions, settings=settings(max_examples=examples, stateful_step_count=25))
