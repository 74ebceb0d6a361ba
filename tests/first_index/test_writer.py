"""Writers of regions on real storage: kills at every step, owners who race, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.crashes import Acknowledged, run, start, wait_for
from tests.first_index.kit import Row, files, first_table, mem_wal, rows_in
from tests.first_index.region_program import race, write_and_merge

import weir
from weir.errors import (
    CorruptionError,
    FencedError,
    InputError,
    KeyValueError,
    SchemaError,
    TableError,
    WriterClosedError,
)
from weir.first_index import writer as writer_module
from weir.first_index.commit import commit_regions, newest_manifest
from weir.first_index.view import base_of, base_only, regions_of
from weir.first_index.wal import RegionWal
from weir.first_index.writer import RegionWriter
from weir.format.first_index_details import FirstIndexDetails, MemWal, MemWalState
from weir.storage.interface import ObjectStore

OPEN, SEALED, FLUSHED, MERGED = MemWalState
BASE: list[Row] = [(1, "a"), (2, "b"), (3, "c")]
MEM_WALS: list[tuple[MemWal, list[list[Row]]]] = [
    (mem_wal("eu", 0, FLUSHED), [[(1, "A"), (4, "d")], [(4, "D")]]),
    (mem_wal("eu", 1, SEALED), [[(1, None)], [(5, "e")]]),
    (mem_wal("eu", 2, OPEN), [[(5, "E")]]),
    (mem_wal("us", 0, OPEN), [[(2, None), (9, "i")]]),
]
EXPECTED = {3: "c", 4: "D", 5: "E", 9: "i"}


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return first_table(tmp_path, BASE, MEM_WALS)


def details_of(store: ObjectStore) -> FirstIndexDetails:
    found = regions_of(newest_manifest(store))
    assert found is not None
    return found


def region(store: ObjectStore, name: str = "eu") -> list[tuple[int, str, list[int]]]:
    own = [one for one in details_of(store).mem_wals if one.region == name]
    return [(one.generation, one.state.name, list(one.entries)) for one in own]


def base_rows(store: ObjectStore) -> dict[int, str]:
    view = base_only(store)
    assert view is not None
    found = base_of(view).dataset.to_table().to_pylist()
    assert len(found) == len({row["id"] for row in found})
    return {row["id"]: row["value"] for row in found}


def test_a_region_of_another_program_goes_on(store: ObjectStore) -> None:
    table = weir.open(store.uri)
    with RegionWriter.claim(store, "eu") as writer:
        assert rows_in(table) == EXPECTED
        assert {one.owner_id for one in details_of(store).mem_wals if one.region == "eu"} == {writer.owner}
        assert [one.owner_id for one in details_of(store).mem_wals if one.region == "us"] == ["owner"]
        write = writer.upsert([{"id": 6, "value": "f"}, {"id": 3, "value": "C"}])
        assert (write.generation, write.entry) == (2, 1)
        assert write.version == newest_manifest(store).version
        writer.delete([4])
        expected = {3: "C", 5: "E", 6: "f", 9: "i"}
        assert rows_in(table) == expected
        assert writer.seal() == 3
        assert region(store) == [
            (0, "FLUSHED", [0, 1]),
            (1, "SEALED", [0, 1]),
            (2, "SEALED", [0, 1, 2]),
            (3, "OPEN", []),
        ]
        assert writer.flush() == 2
        assert rows_in(table) == expected
        assert writer.merge() == 3
        assert [state for _, state, _ in region(store)] == ["MERGED"] * 3 + ["OPEN"]
        assert rows_in(table) == expected
        # Without what the other region has not merged.
        assert base_rows(store) == {2: "b", 3: "C", 5: "E", 6: "f"}
        left = len(files(store))
        assert writer.clean_up() == 2 + 2 + 3 + 2
        assert len(files(store)) == left - 9
        assert rows_in(table) == expected
        assert writer.merge() == writer.flush() == writer.clean_up() == 0
        assert table.maintenance.verify().findings == ()
    # The way on: what a writer of regions has written is in the table of today.
    weir.upgrade(store.uri)
    assert rows_in(weir.open(store.uri)) == expected
    with pytest.raises(WriterClosedError):
        writer.upsert([{"id": 1, "value": "late"}])


def test_a_new_region_begins_with_generation_0_and_seals_by_rows(store: ObjectStore) -> None:
    with RegionWriter.claim(store, "af", seal_rows=3) as writer:
        for n in range(20, 25):
            writer.upsert([{"id": n, "value": "x"}, {"id": n, "value": f"{n}"}])
        writer.upsert([])
    assert region(store, "af") == [(0, "SEALED", [0, 1]), (1, "SEALED", [0, 1]), (2, "OPEN", [0, 1])]
    assert rows_in(weir.open(store.uri)) == EXPECTED | {n: f"{n}" for n in range(20, 25)}
    with RegionWriter.claim(store, "af") as writer:
        assert writer.upsert([{"id": 25, "value": "25"}]).entry == 2


def test_the_former_writer_is_fenced_at_every_step(store: ObjectStore) -> None:
    with RegionWriter.claim(store, "eu") as former, RegionWriter.claim(store, "eu") as writer:
        writer.upsert([{"id": 6, "value": "f"}])
        before = files(store)
        for step in (
            lambda: former.seal(),
            lambda: former.flush(),
            lambda: former.merge(),
            lambda: former.upsert([{"id": 1, "value": "late"}]),
            lambda: former.delete([6]),
        ):
            with pytest.raises(FencedError, match=f"belongs to '{writer.owner}'") as caught:
                step()
            assert caught.value.where
            assert files(store) == before
        assert rows_in(weir.open(store.uri)) == EXPECTED | {6: "f"}


def test_entries_of_a_writer_that_was_fenced_meanwhile_are_holes(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entry is written and never listed; the next writer goes around it, now and at the next claim."""
    former, real = RegionWriter.claim(store, "eu"), RegionWal.append

    def append(self: RegionWal, *args: Any) -> None:
        real(self, *args)
        monkeypatch.setattr(RegionWal, "append", real)
        taken.append(RegionWriter.claim(store, "eu"))
        assert taken[0].upsert([{"id": 6, "value": "f"}]).entry == 2

    taken: list[RegionWriter] = []
    monkeypatch.setattr(RegionWal, "append", append)
    with pytest.raises(FencedError):
        former.upsert([{"id": 6, "value": "never acknowledged"}])
    assert region(store)[-1] == (2, "OPEN", [0, 2])
    assert rows_in(weir.open(store.uri)) == EXPECTED | {6: "f"}
    with RegionWriter.claim(store, "eu") as writer:
        assert writer.upsert([{"id": 7, "value": "g"}]).entry == 3
        writer.seal()
        writer.flush()
        writer.merge()
    assert rows_in(weir.open(store.uri)) == EXPECTED | {6: "f", 7: "g"}


def test_of_two_who_claim_a_new_region_at_once_one_has_it(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = commit_regions

    def commit(*args: Any) -> Any:
        monkeypatch.setattr(writer_module, "commit_regions", real)
        won.append(RegionWriter.claim(store, "af"))
        return real(*args)

    won: list[RegionWriter] = []
    monkeypatch.setattr(writer_module, "commit_regions", commit)
    with pytest.raises(FencedError, match="belongs to"):
        RegionWriter.claim(store, "af")
    won[0].upsert([{"id": 20, "value": "x"}])
    assert region(store, "af") == [(0, "OPEN", [0])]


def test_bad_input_changes_nothing(store: ObjectStore) -> None:
    with RegionWriter.claim(store, "eu") as writer:
        before = files(store)
        for rows, error in (
            ([{"id": None, "value": "x"}], KeyValueError),
            ([{"value": "x"}], KeyValueError),
            ([{"id": 1, "nothing": 2}], SchemaError),
            ([{"id": "one"}], SchemaError),
            (7, InputError),
        ):
            with pytest.raises(error):
                writer.upsert(rows)
        with pytest.raises(InputError):
            writer.delete("one")
        assert files(store) == before
    for name in ("\ud800", 7):
        with pytest.raises(InputError, match="name of a region"):
            RegionWriter.claim(store, name)  # type: ignore[arg-type]
    with pytest.raises(InputError):
        RegionWriter.claim(store, "eu", seal_rows=0)
    assert files(store) == before
    # Longer than the name of a file may be.
    with RegionWriter.claim(store, "x" * 3000) as writer:
        writer.upsert([{"id": 30, "value": "long"}])
    assert rows_in(weir.open(store.uri)) == EXPECTED | {30: "long"}


def test_a_table_of_today_has_no_regions(store: ObjectStore) -> None:
    writer = RegionWriter.claim(store, "eu")
    weir.upgrade(store.uri)
    before = files(store)
    for step in (lambda: writer.upsert([{"id": 1, "value": "late"}]), writer.merge):
        with pytest.raises(FencedError, match="was upgraded"):
            step()
    with pytest.raises(TableError, match="current form"):
        RegionWriter.claim(store, "eu")
    left = [path for path in files(store) if path not in before]
    # The entry that no index will ever list.
    assert [path.rpartition("/")[0] for path in left] == ["_weir/regions/6575/a-2"]


@pytest.mark.parametrize(("generation", "claims"), [(2, False), (0, True)])
def test_what_cannot_be_read_is_an_error_with_its_place(
    store: ObjectStore, generation: int, claims: bool
) -> None:
    """Of what is to be replayed before anybody is fenced; of what is to be merged before rows change."""
    (damaged, *_) = sorted(Path(store.uri, MEM_WALS[generation][0].wal_location).iterdir())
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    before = files(store)
    if not claims:
        with pytest.raises(CorruptionError, match="checksum") as caught:
            RegionWriter.claim(store, "eu")
        assert files(store) == before
    else:
        with RegionWriter.claim(store, "eu") as writer:
            before = files(store)
            with pytest.raises(CorruptionError, match="checksum") as caught:
                writer.merge()
            assert files(store) == before
    assert caught.value.where == str(damaged)


POINTS = [
    "region.before_claim",
    "region.after_claim",
    "region.before_entry@2",
    "region.after_entry@3",
    "region.after_listed@5",
    "region.before_seal",
    "region.after_seal@2",
    "region.before_flush",
    "region.after_flush@2",
    "region.before_merge@2",
    "region.after_merge@2",
    "merge.after_deletions@3",
]


@pytest.mark.one_in(6)
@pytest.mark.parametrize("point", POINTS)
def test_killed_at(store: ObjectStore, point: str) -> None:
    """A process is killed there, and so is the next if it gets there; a third comes to its end."""
    expected = Acknowledged(dict(EXPECTED))
    lives = []
    for start_key, place in ((100, point), (200, point), (300, "")):
        lives.append(run(write_and_merge, store.uri, "eu", start_key, 4, kill_at=place))
        expected.follow(lives[-1].told)
        # The write that was under way may have been listed: all of it, or nothing.
        expected.check(rows_in(weir.open(store.uri)))
    assert any(life.was_killed for life in lives), "the failpoint was never reached"
    assert weir.open(store.uri).maintenance.verify(base_rows=False).findings == ()
    weir.upgrade(store.uri)
    assert rows_in(weir.open(store.uri)) == expected.rows


def test_two_owners_who_race(store: ObjectStore) -> None:
    """Two processes take the region from each other; what was acknowledged is there, in the order listed."""
    running = [start(race, store.uri, name, 12) for name in ("1", "2")]
    steps = [step for one in running for step in wait_for(one).told]
    writes = sorted((one for one in steps if "rows" in one), key=lambda one: one["version"])
    assert len(writes) == 24
    assert len({one["version"] for one in writes}) == 24
    model = dict(EXPECTED)
    for write in writes:
        model.update(dict(write["rows"]))
    assert rows_in(weir.open(store.uri)) == model
    assert weir.open(store.uri).maintenance.verify(base_rows=False).findings == ()
