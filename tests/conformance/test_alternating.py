"""Writers of Weir and of the library take a table from each other many times; it equals a dict throughout.

Both write, delete, flush and merge. Whoever has been fenced finds out at its next write, which must fail
and change nothing; what it had acknowledged stays.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from pathlib import Path

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from lance.mem_wal import ShardWriter
from tests.conformance import library
from tests.conformance.tables import KINDS, Key, Kind, Model
from tests.sharding.oracles import library_values

import weir
from weir.engine.context import default_context
from weir.errors import FencedError
from weir.write.table_writer import TableWriter

KEYS = st.integers(0, 11)


class Writers(RuleBasedStateMachine):
    """A table of one shard or of two, with at most one writer of each kind at a time."""

    kind: Kind
    sharded: bool

    @initialize(by_the_library=st.booleans(), data=st.lists(KEYS, max_size=4, unique=True))
    def create(self, by_the_library: bool, data: list[int]) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="weir-conformance-"))
        self.place = self.directory / "t"
        self.model = Model(self.kind)
        self.ours: TableWriter | None = None
        self.theirs: dict[uuid.UUID, ShardWriter] = {}
        # Who has claimed a shard last; a writer is fenced shard by shard.
        self.owner: dict[uuid.UUID, str] = {}
        key = self.kind.key_columns
        if by_the_library:
            rows = self.model.upsert(self.keys(data)) if data else None
            how = {"bucket_column": key[-1], "num_buckets": 2} if self.sharded else {"unsharded": True}
            library.make_table(self.place, self.kind, rows, **how)
            self.table = weir.open(self.place, fsync=False)
        else:
            shard_by = weir.bucket(key[-1], 2) if self.sharded else None
            self.table = weir.create(
                self.place, self.kind.plain_schema, primary_key=key, shard_by=shard_by, fsync=False
            )
        # Shards the library has made, by their bucket; those of Weir say it in their manifests.
        self.made: dict[int, uuid.UUID] = {}

    def teardown(self) -> None:
        if getattr(self, "ours", None) is not None:
            self.leave_ours()
        for writer in getattr(self, "theirs", {}).values():
            library.close_quietly(writer)
        shutil.rmtree(getattr(self, "directory", ""), ignore_errors=True)

    def keys(self, numbers: list[int]) -> list[Key]:
        return [self.kind.keys[number] for number in numbers]

    # The library's part: it routes by its own transforms, and claims a shard by its id.

    def shards_for(self, rows: pa.Table) -> list[tuple[uuid.UUID, pa.Table]]:
        (spec,) = library.details_of(self.place).shard_specs
        batch = rows.combine_chunks().to_batches()[0]
        if not self.sharded:
            return [(self.shard_of(0), rows)]
        # The key is first in the table and alone in the batch, so field ids are positions in both.
        values = library_values(batch.select(list(self.kind.key_columns)), spec).column(0)
        return [
            (self.shard_of(bucket), rows.filter(pc.equal(values, bucket)))
            for bucket in pc.unique(values).to_pylist()
        ]

    def shard_of(self, bucket: int) -> uuid.UUID:
        for shard in library.shards_of(self.place):
            fields = library.manifest_of(self.place, shard).shard_fields
            if fields and int.from_bytes(fields[0].value, "little") == bucket:
                return shard
        return self.made.setdefault(bucket, uuid.uuid4())

    def their_writer(self, shard: uuid.UUID) -> ShardWriter:
        if shard not in self.theirs:
            self.theirs[shard] = library.open_writer(self.place, shard)
            self.owner[shard] = "theirs"
        return self.theirs[shard]

    def is_fenced(self, shard: uuid.UUID) -> bool:
        return shard in self.theirs and self.owner[shard] != "theirs"

    @rule(numbers=st.lists(KEYS, min_size=1, max_size=5))
    def library_puts(self, numbers: list[int]) -> None:
        self.library_writes(numbers, delete=False)

    @rule(numbers=st.lists(KEYS, min_size=1, max_size=5))
    def library_deletes(self, numbers: list[int]) -> None:
        self.library_writes(numbers, delete=True)

    def library_writes(self, numbers: list[int], *, delete: bool) -> None:
        for shard, rows in self.shards_for(self.kind.rows(self.keys(numbers), 0)):
            keys = [self.kind.key_of(row) for row in rows.to_pylist()]
            if self.is_fenced(shard):
                writer = self.theirs.pop(shard)
                with pytest.raises(OSError, match=r"(?i)fence|epoch"):
                    writer.delete(self.kind.key_table(keys)) if delete else writer.put(rows)
                library.close_quietly(writer)
            elif delete:
                self.their_writer(shard).delete(self.model.delete(keys))
            else:
                self.their_writer(shard).put(self.model.upsert(keys))

    # Weir's part

    def our_writer(self) -> TableWriter:
        if self.ours is None:
            self.ours = self.table.writer(max_memtable_rows=8)
            self.ours.__enter__()
        return self.ours

    def leave_ours(self) -> None:
        assert self.ours is not None
        self.ours.__exit__(RuntimeError, RuntimeError("the process has ended"), None)
        self.ours = None

    @rule(numbers=st.lists(KEYS, min_size=1, max_size=5))
    def weir_upserts(self, numbers: list[int]) -> None:
        self.weir_writes(numbers, delete=False)

    @rule(numbers=st.lists(KEYS, min_size=1, max_size=5))
    def weir_deletes(self, numbers: list[int]) -> None:
        self.weir_writes(numbers, delete=True)

    def weir_writes(self, numbers: list[int], *, delete: bool) -> None:
        for shard, rows in self.shards_for(self.kind.rows(self.keys(numbers), 0)):
            keys = [self.kind.key_of(row) for row in rows.to_pylist()]
            writer = self.our_writer()
            if shard in writer.epochs and self.owner[shard] == "theirs":
                with pytest.raises(FencedError):
                    writer.delete(rows) if delete else writer.upsert(rows)
                self.leave_ours()
            elif delete:
                writer.delete(self.model.delete(keys))
            else:
                writer.upsert(self.model.upsert(keys))
            if self.ours is not None:
                # It may have made the shard a moment ago, under an id of its own.
                ((shard, _),) = self.shards_for(rows)
                self.owner[shard] = "ours"

    # Either's. Most rules are writes, so that writers meet often.

    @rule(which=st.sampled_from(["weir flushes", "weir ends", "library closes"]))
    def flush(self, which: str) -> None:
        if which == "library closes":
            self.close_theirs()
        elif self.ours is None:
            return
        elif which == "weir ends" or any(self.owner[shard] != "ours" for shard in self.ours.epochs):
            self.leave_ours()
        else:
            self.ours.flush()

    def close_theirs(self) -> None:
        """Closing is how the library's writer flushes. One that is fenced cannot, and nothing is lost."""
        for shard, writer in self.theirs.items():
            if self.is_fenced(shard):
                library.close_quietly(writer)
            else:
                writer.close()
        self.theirs.clear()

    @rule(by_the_library=st.booleans())
    def merge(self, by_the_library: bool) -> None:
        if not by_the_library:
            self.table.maintenance.merge()
            return
        for shard in library.shards_of(self.place):
            if library.unmerged_of(self.place, shard):
                library.merge(self.place, shard, self.kind)

    @rule()
    def read_by_the_library(self) -> None:
        """What is flushed, by its scanner and planner. So nothing may be in a log alone."""
        self.close_theirs()
        if self.ours is not None:
            self.leave_ours()
        with self.table.writer() as writer:
            # A claim replays what the log holds, and closing flushes it.
            writer.upsert(self.model.upsert(self.kind.keys))
            self.owner.update(dict.fromkeys(writer.epochs, "ours"))
        self.model.check(library.scan(self.place))
        find = library.lookup(self.place, self.kind)
        for key in self.kind.keys[:4]:
            assert find(key).select(self.kind.schema.names).to_pylist() == self.model.at(key)

    @rule()
    def read_from_nothing(self) -> None:
        default_context().cache.clear()
        table = weir.open(self.place, fsync=False)
        self.model.check(table.scan().to_table())
        found = table.get(self.kind.key_table(self.kind.keys))
        assert found.to_pylist() == [row for key in self.kind.keys for row in self.model.at(key)]

    @invariant()
    def read(self) -> None:
        if hasattr(self, "table"):
            self.model.check(self.table.scan().to_table())


# A history takes seconds: one in the short run, many with the profile "thorough", and none to shorten a
# failing one.
HISTORIES = max(1, settings.default.max_examples // 32)  # type: ignore[union-attr]


@pytest.mark.hypothesis
@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "sharded"), [("int64", True), ("string-int32", False)])
def test_writers_take_turns(name: str, sharded: bool) -> None:
    machine = type(f"Writers_{name}", (Writers,), {"kind": KINDS[name], "sharded": sharded})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=HISTORIES,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.explicit, Phase.generate),
        ),
    )
