"""What the released library writes, flushes, deletes and merges, Weir reads, takes over and carries on."""

from __future__ import annotations

import uuid
from pathlib import Path

import lance
import pytest
from tests.conformance import library
from tests.conformance.tables import KINDS, Model

import weir
from weir.cache import process_cache


@pytest.mark.parametrize("name", KINDS)
def test_weir_reads_and_takes_over_what_the_library_writes(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    model, place, shard, keys = Model(kind), tmp_path / "t", uuid.uuid4(), kind.keys
    library.make_table(place, kind, model.upsert(keys[:6]), unsharded=True)
    table = weir.open(place, fsync=False)
    model.check(table.scan().to_table())
    # Generation 1, with a key twice and a tombstone; generation 2; a tail of both kinds.
    with library.open_writer(place, shard) as theirs:
        theirs.put(model.upsert([keys[1], keys[6], keys[6]]))
        theirs.delete(model.delete([keys[0], keys[11]]))
        model.check(table.scan().to_table())
    model.check(table.scan().to_table())
    with library.open_writer(place, shard) as theirs:
        theirs.put(model.upsert([keys[0], keys[7]]))
        theirs.delete(model.delete([keys[2]]))
    tail = library.open_writer(place, shard)
    tail.put(model.upsert([keys[2], keys[8]]))
    tail.delete(model.delete([keys[1], keys[7]]))

    def check_reads() -> None:
        model.check(table.scan().to_table())
        for key in keys:
            assert table.get(kind.key_table([key])).to_pylist() == model.at(key)
        process_cache().clear()
        model.check(weir.open(place, fsync=False).scan().to_table())

    check_reads()
    assert library.merge(place, shard, kind) == 1
    check_reads()

    # Weir takes over the shard with its tail, and finds that generation 1 is merged.
    with table.writer() as writer:
        writer.upsert(model.upsert([keys[9]]))
        assert list(writer.epochs) == [shard]
        writer.delete(model.delete([keys[3], keys[8]]))
        check_reads()
    model.check(library.scan(place))
    table.merge()
    check_reads()
    model.check(lance.dataset(str(place)).to_table())

    # And back: the library goes on where Weir left, and merges what it wrote.
    with library.open_writer(place, shard) as theirs:
        model.check(theirs.lsm_scanner().to_table())
        theirs.put(model.upsert([keys[3], keys[10]]))
    (newest,) = library.unmerged_of(place, shard)
    assert library.merge(place, shard, kind) == newest[0]
    check_reads()
    model.check(lance.dataset(str(place)).to_table())
    assert table.merge().generations == 0
