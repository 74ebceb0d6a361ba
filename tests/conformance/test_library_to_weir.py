"""What the released library writes, flushes, deletes and merges, Weir reads, takes over and carries on."""

from __future__ import annotations

import uuid
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from tests.conformance import library
from tests.conformance.tables import KINDS, Model

import weir
from weir.engine.context import default_context


@pytest.mark.one_in(5)
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
        default_context().cache.clear()
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
    table.maintenance.merge()
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
    assert table.maintenance.merge().generations == 0


@pytest.mark.parametrize("flushed", [False, True], ids=["log", "generation"])
def test_a_shard_of_deletes_alone_is_not_made_a_second_time(flushed: bool, tmp_path: Path) -> None:
    """The library records no shard values. Were a second shard made, the delete could come after."""
    kind = KINDS["int64"]
    model, place, shard = Model(kind), tmp_path / "t", uuid.uuid4()
    key = kind.keys[5]
    library.make_table(place, kind, model.upsert([key]), bucket_column="key0", num_buckets=4)
    theirs = library.open_writer(place, shard)
    theirs.delete(model.delete([key]))
    if flushed:
        theirs.close()
    table = weir.open(place, fsync=False)
    with table.writer() as writer:
        writer.upsert(model.upsert([key]))
        assert list(writer.epochs) == [shard]
    assert table.get(kind.key_table([key])).num_rows == 1
    model.check(table.scan().to_table())


def test_what_the_library_says_of_a_weir_table(tmp_path: Path) -> None:
    """Its own reading of the index details names the same shard specs and settings."""
    for number, rule in enumerate([weir.bucket("id", 8), weir.identity("id"), weir.unsharded()]):
        table = weir.create(
            tmp_path / str(number), pa.schema([("id", pa.int64())]), primary_key="id", shard_by=rule
        )
        ours = library.details_of(tmp_path / str(number))
        theirs = lance.dataset(table.uri).mem_wal_index_details()
        assert theirs is not None
        assert theirs["num_shards"] == ours.num_shards
        assert theirs["maintained_indexes"] == list(ours.maintained_indexes)
        assert theirs["writer_config_defaults"] == dict(ours.writer_config_defaults)
        (spec,) = ours.shard_specs
        (field,) = spec.fields
        assert theirs["sharding_specs"] == [
            {
                "spec_id": spec.spec_id,
                "fields": [
                    {
                        "field_id": field.field_id,
                        "source_ids": list(field.source_ids),
                        "transform": field.transform,
                        "expression": field.expression,
                        "result_type": field.result_type,
                        "parameters": dict(field.parameters),
                    }
                ],
            }
        ]
