"""One table and everybody who changes it; each step is a method, and none depends on another one."""

from __future__ import annotations

import operator
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal
from uuid import UUID, uuid4, uuid5

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance.mem_wal import CompactedSsTable, ShardWriter
from tests.conformance import library
from tests.conformance.differential.shapes import TYPES, Column, Key, Model, Shape, Values, random_shape
from tests.conformance.differential.stored import (
    columns_now,
    unflushed_columns,
    unflushed_keys,
    unflushed_types,
    unmerged_columns,
    unmerged_keys,
    unmerged_types,
)
from tests.sharding.oracles import library_values

import weir
from weir.base.dataset_fields import marks_of
from weir.engine import failpoint
from weir.engine.context import default_context
from weir.engine.failpoint import FailpointError
from weir.errors import FencedError, InputError, SchemaError, SnapshotExpiredError, WeirError
from weir.format.field_births import Births
from weir.write.table_writer import TableWriter

_SHARD_IDS = UUID(bytes=b"LSMWRITE_SHARD01")
_TICK_SECONDS = 0.01
_SHARED_MEMORY = Path("/dev/shm")

WIDER = {pa.int32(): pa.int64(), pa.decimal128(12, 2): pa.decimal128(20, 2)}
FLUSH_POINTS = ("flush.after_data", "flush.before_manifest", "flush.after_manifest")
MERGE_POINTS = ("merge.before_deletes", "merge.between_passes", "merge.before_commit", "merge.after_commit")
WAVE_POINTS = (
    "merge.after_rows",
    "merge.between_waves",
    "merge.after_deletions",
    "merge.before_commit",
    "merge.after_commit",
)
CLAIM_POINTS = ("claim.between_lease_and_epoch", "claim.between_epoch_and_fence")
GARBAGE_POINTS = ("garbage.after_mark", "garbage.after_manifest", "garbage.between_deletes")


class DifferenceError(AssertionError):
    """Somebody shows something else than the dict."""


class World:
    """A table that begins as a seed says.

    Parameters
    ----------
    seed : int
        Decides shape, shard rule, and who makes the table.
    directory : Path, optional
        Where the table and its clones are, or a place in a bucket that is like one. Default: a new directory,
        which goes when the history is over.
    """

    def __init__(self, seed: int, directory: Path | None = None) -> None:
        chance = random.Random(seed)
        shape, self.keys = random_shape(chance)
        self.model = Model(shape)
        self.is_temporary = directory is None
        memory = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="weir-differential-", dir=memory))
        self.place = self.directory / "t"
        self.rule = chance.choice(["unsharded", "bucket", "bucket", "identity"])
        if self.rule == "identity" and len(shape.key_types) == 1:
            self.rule = "bucket"
        self.shard_column = shape.key_names[0]
        self.buckets = chance.choice([1, 2, 3])
        self.by_the_library = chance.random() < 0.5
        self.random_ids = chance.random() < 0.3
        self.begun_with = chance.sample(list(self.keys), chance.randint(0, 5))
        self._make()
        self.ours: TableWriter | None = None
        self.theirs: dict[UUID, tuple[ShardWriter, Shape]] = {}
        self.left: list[ShardWriter] = []
        self.feed_token: Any = None
        self.fed: dict[Key, Values | None] = {}
        self.written: dict[Key, Values | None] = {}
        self.snapshots: list[tuple[Any, Model]] = []
        self.versions: dict[int, tuple[Shape, object]] = {}
        self.ids: dict[object, UUID] = {}
        self.ids_given_out: set[int] = set()
        self.places = 1
        # A clone's shards have ids of Weir's own, and files of other tables may be the base table's.
        self.is_clone = False
        self.borrows = False
        self.copied_branch = False

    def _make(self) -> None:
        shape, rule = self.model.shape, self.rule
        rows = self.model.new_rows(self.begun_with)
        if self.by_the_library:
            how: dict[str, Any] = {"unsharded": True}
            if rule == "bucket":
                how = {"bucket_column": self.shard_column, "num_buckets": self.buckets}
            elif rule == "identity":
                how = {"identity_column": self.shard_column}
            dataset = lance.write_dataset(shape.table(rows), str(self.place))
            dataset.initialize_mem_wal(**how)
            self.model.apply(rows)
            self.table = weir.open(self.place, fsync=False)
            return
        shard_by = None
        if rule == "bucket":
            shard_by = weir.bucket(self.shard_column, self.buckets)
        elif rule == "identity":
            shard_by = weir.identity(self.shard_column)
        self.table = weir.create(
            self.place, shape.plain_schema, primary_key=shape.key_names, shard_by=shard_by, fsync=False
        )

    def close(self) -> None:
        """Let go of everything."""
        if self.ours is not None:
            with suppress(Exception):
                self._leave_ours()
        for writer, _ in self.theirs.values():
            library.close_quietly(writer)
        for writer in self.left:
            library.close_quietly(writer)
        library._opened.clear()
        if self.is_temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    # Writers

    def _some(self, chance: random.Random) -> list[Key]:
        return chance.sample(list(self.keys), chance.choice([1, 1, 2, 3, 5]))

    def _our_writer(self, chance: random.Random) -> TableWriter:
        if self.ours is None:
            self.ours = self.table.writer(
                takeover=True,
                max_memtable_rows=chance.choice([1, 3, 8, 1000]),
                max_memtable_entries=chance.choice([2, 5, 8000]),
                flush_on_close=chance.random() < 0.5,
            )
        return self.ours

    def _leave_ours(self) -> None:
        """As a process does that ends: what is in its log stays there."""
        assert self.ours is not None
        writer, self.ours = self.ours, None
        writer.__exit__(RuntimeError, RuntimeError("the process has ended"), None)

    def _remember(self, rows: Mapping[Key, Values | None]) -> None:
        self.model.apply(rows)
        self.written.update(rows)

    def weir_upserts(self, chance: random.Random) -> None:
        rows = self.model.new_rows(self._some(chance))
        self._weir_writes(chance, lambda writer: writer.upsert(self.model.shape.table(rows)), rows)

    def weir_deletes(self, chance: random.Random) -> None:
        keys = self._some(chance)
        table = self.model.shape.keys(keys)
        self._weir_writes(chance, lambda writer: writer.delete(table), dict.fromkeys(keys))

    def weir_patches(self, chance: random.Random) -> None:
        """Change some columns of rows; of those that are not there, make some."""
        shape, old = self.model.shape, self.model.rows
        chosen = chance.sample(shape.columns, chance.randint(1, len(shape.columns)))
        made = self.model.new_rows(self._some(chance), replace(shape, columns=tuple(chosen)))
        missing: Literal["skip", "insert"] = chance.choice(["skip", "insert"])
        rows = {
            key: {**old.get(key, {}), **row} for key, row in made.items() if key in old or missing == "insert"
        }
        table = shape.table(made).select([*shape.key_names, *(one.name for one in chosen)])
        self._weir_writes(chance, lambda writer: writer.patch(table, missing=missing), rows)

    def weir_inserts(self, chance: random.Random) -> None:
        made = self.model.new_rows(self._some(chance))
        rows = {key: row for key, row in made.items() if key not in self.model.rows}
        self._weir_writes(chance, lambda writer: writer.insert(self.model.shape.table(made)), rows)

    def weir_updates_where(self, chance: random.Random) -> None:
        counts = [one for one in self.model.shape.columns if one.type == pa.int64()]
        if not counts:
            return
        column, old = chance.choice(counts), self.model.rows
        self.model.writes += 1
        number = self.model.writes
        rows = {key: {**row, column.id: number} for key, row in old.items() if row.get(column.id) is not None}
        self._weir_writes(
            chance,
            lambda writer: writer.update(f"{column.name} IS NOT NULL", {column.name: str(number)}),
            rows,
        )

    def weir_deletes_where(self, chance: random.Random) -> None:
        column = chance.choice(self.model.shape.columns)
        rows = {key: None for key, row in self.model.rows.items() if row.get(column.id) is None}
        self._weir_writes(chance, lambda writer: writer.delete(where=f"{column.name} IS NULL"), rows)

    def weir_shares(self, chance: random.Random) -> None:
        """Write with another writer of this process, beside the one that may be open."""
        shape, keys = self.model.shape, self._some(chance)
        made = self.model.new_rows(keys)
        rows: Mapping[Key, Values | None] = dict.fromkeys(keys) if chance.random() < 0.3 else made

        def write(_: TableWriter) -> None:
            with weir.open(self.place, fsync=False).writer(takeover=True) as writer:
                if rows is made:
                    writer.upsert(shape.table(made))
                else:
                    writer.delete(shape.keys(keys))

        self._weir_writes(chance, write, rows)

    def weir_snapshots(self, chance: random.Random) -> None:
        """Take a snapshot, which is to show what is there now for as long as it can be read."""
        token = self.table.snapshot(retain=None)
        rows = {key: dict(row) for key, row in self.model.rows.items()}
        self.snapshots = [*self.snapshots[-2:], (token, replace(self.model, rows=rows))]

    def _weir_writes(
        self, chance: random.Random, write: Callable[[TableWriter], object], rows: Mapping[Key, Values | None]
    ) -> None:
        for _ in range(3):
            try:
                write(self._our_writer(chance))
            except FencedError:
                self._leave_ours()
                continue
            except SchemaError:
                # Plain Lance has changed the columns since the writer was opened.
                self._leave_ours()
                self.table = weir.open(self.place, fsync=False)
                continue
            self._remember(rows)
            return
        raise DifferenceError("a writer that was just opened is fenced")

    def weir_flushes(self, chance: random.Random) -> None:
        if self.ours is not None:
            with suppress(FencedError):
                self.ours.flush()
                return
            self._leave_ours()

    def weir_closes(self, chance: random.Random) -> None:
        if self.ours is not None:
            writer, self.ours = self.ours, None
            with suppress(FencedError):
                writer.close()

    def weir_dies(self, chance: random.Random) -> None:
        if self.ours is not None:
            self._leave_ours()

    def weir_dies_in_a_flush(self, chance: random.Random) -> None:
        if self.ours is None:
            return
        with self._failing(chance.choice(FLUSH_POINTS)):
            self.ours.flush()
        self._leave_ours()

    def weir_dies_in_a_claim(self, chance: random.Random) -> None:
        if self.ours is not None:
            self._leave_ours()
        with self._failing(chance.choice(CLAIM_POINTS)):
            self.table.maintenance.recover(unleased=True)

    @contextmanager
    def _failing(self, point: str) -> Iterator[None]:
        with failpoint.armed(point, "raise"):
            try:
                yield
            except FailpointError:
                pass
            except WeirError as error:
                fenced = isinstance(error, FencedError)
                if not fenced and "failpoint" not in f"{error} {error.__cause__}":
                    raise

    def recover(self, chance: random.Random) -> None:
        if self.ours is not None:
            self._leave_ours()
        self.table.maintenance.recover(unleased=True)

    # The library's

    def _by_shard(self, keys: list[Key]) -> list[tuple[UUID, list[Key]]]:
        if self.rule == "unsharded":
            return [(self._shard_of("unsharded", None), keys)]
        (spec,) = library.details_of(self.place).shard_specs
        batch = self.model.shape.keys(keys).combine_chunks().to_batches()[0]
        values = library_values(batch, spec).column(0).to_pylist()
        groups: dict[object, list[Key]] = {}
        for key, value in zip(keys, values, strict=True):
            groups.setdefault(value, []).append(key)
        return [(self._shard_of(self.rule, value), group) for value, group in groups.items()]

    def _shard_of(self, rule: str, value: Any) -> UUID:
        """Return the shard of a value: the one there is, else LanceDB's, or one of no rule."""
        if self.is_clone:
            return self._shards_of_a_clone()[value]
        derived = uuid5(_SHARD_IDS, rule if value is None else f"{rule}-{value}")
        shards = library.shards_of(self.place)
        if derived in shards or not self.random_ids:
            return derived
        if value not in self.ids:
            self.ids[value] = uuid4()
        return self.ids[value]

    def _shards_of_a_clone(self) -> dict[Any, UUID]:
        """Return the shards by value; by None without a rule."""
        shards = self.table.status().shards
        return {next(iter(one.values.values()), None): one.shard_id for one in shards}

    def _is_in_a_shard(self, key: Key) -> bool:
        """Whether the library can know where a key goes: a shard of Weir's, which only Weir makes."""
        try:
            return bool(self._by_shard([key]))
        except KeyError:
            return False

    def _their_writer(self, shard: UUID, chance: random.Random) -> tuple[ShardWriter, Shape]:
        if shard not in self.theirs:
            if self._is_stale(unflushed_columns(self.place)) or self._is_narrower(
                unflushed_types(self.place)
            ):
                self.recover(chance)
            dataset = lance.dataset(str(self.place))
            interval = library.FLUSH_MILLISECONDS
            limits: dict[str, Any] = chance.choice(
                [{}, {"max_memtable_batches": 2}, {"max_memtable_rows": 8}]
            )
            try:
                writer = dataset.mem_wal_writer(str(shard), max_wal_flush_interval_ms=interval, **limits)
            except OSError as error:
                if limits and "can hold" in str(error):
                    # What was written with larger limits is for a larger MemTable to replay.
                    writer = dataset.mem_wal_writer(str(shard), max_wal_flush_interval_ms=interval)
                else:
                    raise
            self.theirs[shard] = writer, self.model.shape
        return self.theirs[shard]

    def _library_writes(self, chance: random.Random, keys: list[Key], *, delete: bool) -> None:
        if self.is_clone:
            keys = [key for key in keys if self._is_in_a_shard(key)]
            if not keys:
                return
        for shard, group in self._by_shard(keys):
            for attempt in range(2):
                writer, shape = self._their_writer(shard, chance)
                rows: Mapping[Key, Values | None]
                try:
                    if delete:
                        rows = dict.fromkeys(group)
                        writer.delete(shape.keys(group))
                    else:
                        made = self.model.new_rows(group, shape)
                        rows = made
                        writer.put(shape.table(made))
                except OSError as error:
                    if attempt or not any(word in str(error).lower() for word in ("fence", "epoch")):
                        raise
                    del self.theirs[shard]
                    library.close_quietly(writer)
                    continue
                self._remember(rows)
                break

    def library_puts(self, chance: random.Random) -> None:
        self._library_writes(chance, self._some(chance), delete=False)

    def library_deletes(self, chance: random.Random) -> None:
        self._library_writes(chance, self._some(chance), delete=True)

    def library_closes(self, chance: random.Random) -> None:
        """Closing is how the library flushes; one that is fenced cannot, and nothing is lost."""
        for writer, _ in self.theirs.values():
            library.close_quietly(writer)
        self.theirs.clear()

    def library_dies(self, chance: random.Random) -> None:
        """Its rows stay in the log; the handle is closed when somebody else has claimed the shard."""
        self.left.extend(writer for writer, _ in self.theirs.values())
        self.theirs.clear()

    def library_merges(self, chance: random.Random) -> None:
        names = list(self.model.shape.key_names)
        for shard in library.shards_of(self.place):
            if not library.unmerged_of(self.place, shard):
                continue
            generation, path = library.unmerged_of(self.place, shard)[0]
            flushed = lance.dataset(str(self.place / f"_mem_wal/{shard}/{path}"))
            rows = flushed.to_table()
            gone = rows.filter(rows["_tombstone"]).select(names)
            kept = rows.filter(pc.invert(rows["_tombstone"])).drop_columns("_tombstone")
            dataset = lance.dataset(str(self.place))
            if _field_ids(flushed) - {"_tombstone"} != _field_ids(dataset):
                return  # its recipe goes by names, which is right only as long as they stand for the same
            if gone.num_rows:
                dataset.merge_insert(names).when_matched_delete().execute(gone)
                dataset = lance.dataset(str(self.place))
            upsert = dataset.merge_insert(names).when_matched_update_all().when_not_matched_insert_all()
            upsert.mark_sstables_as_compacted([CompactedSsTable(str(shard), generation)])
            upsert.execute(kept.select(dataset.schema.names).cast(dataset.schema))

    # Jobs of Weir

    def merge(self, chance: random.Random) -> None:
        self.table.maintenance.merge()

    def merge_dies(self, chance: random.Random) -> None:
        with self._failing(chance.choice(MERGE_POINTS)):
            self.table.maintenance.merge()

    def merge_divided(self, chance: random.Random) -> None:
        self.table.maintenance.merge(divided=True)

    def merge_divided_dies(self, chance: random.Random) -> None:
        with self._failing(chance.choice(WAVE_POINTS)):
            self.table.maintenance.merge(divided=True)

    def collect(self, chance: random.Random) -> None:
        self.table.maintenance.collect_garbage(horizon=timedelta(0))

    def collect_dies(self, chance: random.Random) -> None:
        with self._failing(chance.choice(GARBAGE_POINTS)):
            self.table.maintenance.collect_garbage(horizon=timedelta(0))

    def compact(self, chance: random.Random) -> None:
        self.table.maintenance.compact()

    def catch_up(self, chance: random.Random) -> None:
        self.table.maintenance.catch_up_indexes()

    def maintain(self, chance: random.Random) -> None:
        self.table.maintenance.run(horizon=timedelta(0))

    def repair(self, chance: random.Random) -> None:
        self.table.maintenance.repair()

    def weir_indexes(self, chance: random.Random) -> None:
        indexes = self.table.indexes.list()
        taken = {one.name for one in indexes} | {f"{one.column}_idx" for one in indexes}
        scalar = [one for one in self.model.shape.columns if pa.types.is_primitive(one.type)]
        if scalar:
            column = chance.choice(scalar)
            if f"{column.name}_idx" not in taken:
                self.table.indexes.create(column.name, "BTREE")

    def weir_alters(self, chance: random.Random) -> None:
        alteration, shape = self._alteration(chance)
        dropped, added = alteration.get("drop", []), alteration.get("add", [])
        if {one.name for one in added} & set(dropped):
            # A column is named once in an alter.
            if self._alter(drop=dropped):
                assert self._alter(add=added)
                self._altered(shape)
        elif self._alter(**alteration):
            self._altered(shape)

    def _alter(self, **alteration: Any) -> bool:
        """Whether no index was in the way."""
        try:
            self.table.alter(**alteration)
        except weir.errors.SchemaError as error:
            if "index" not in str(error):
                raise
            return False
        return True

    def weir_widens(self, chance: random.Random) -> None:
        shape = self.model.shape
        columns = [one for one in shape.columns if one.type in WIDER]
        if columns:
            chosen = chance.choice(columns)
            made = replace(chosen, type=WIDER[chosen.type])
            if self._alter(widen={chosen.name: made.type}):
                columns = [made if one is chosen else one for one in shape.columns]
                self._altered(replace(shape, columns=tuple(columns)))

    # Clones, in which a history may go on

    def weir_clones(self, chance: random.Random) -> None:
        """Clone with all that is not merged."""
        if self.borrows:
            return  # refused by name: its files are another table's
        source, rows = self.table, dict(self.model.rows)
        target = self._next_place()
        clone = weir.clone(source.uri, str(target), fsync=False)
        self._compare("a clone", clone.scan().to_table())
        if chance.random() < 0.7:
            self._go_on_in(clone, target, rows)

    def lance_clones(self, chance: random.Random) -> None:
        """Clone the base table by itself, by means that know nothing of what is not merged."""
        self._settle_half_merged()
        dataset, target = lance.dataset(str(self.place)), self._next_place()
        how = chance.choice(["shallow", "deep", "branch", "copy"])
        if how != "deep" and not isinstance(self.place, Path):
            return
        if how != "copy" and self.copied_branch:
            return  # the library looks for a branch where it made it
        if how == "shallow":
            dataset.shallow_clone(str(target), dataset.version)
        elif how == "deep":
            dataset.deep_clone(str(target), dataset.version)
        elif how == "branch":
            target = Path(str(dataset.create_branch(target.name).uri).removeprefix("file://"))
        else:
            shutil.copytree(self.place, target, ignore=shutil.ignore_patterns("_mem_wal", "tree"))
        shape = self.model.shape
        found = lance.dataset(str(target)).to_table().to_pylist()
        rows = {shape.key_of(row): shape.values_of(row) for row in found}
        before, self.model.rows = self.model.rows, rows
        clone = weir.open(target, fsync=False)
        self._compare(f"a clone by {how}", clone.scan().to_table())
        if chance.random() < 0.7:
            self.borrows = self.borrows or how in ("shallow", "branch")
            self.copied_branch = self.copied_branch or (how == "copy" and "tree" in Path(self.place).parts)
            self._go_on_in(clone, target, rows)
            # Until its first write it has the merge progress of its source, which the library believes, and
            # is no table of its own.
            self.weir_upserts(chance)
            self.feed_token, self.fed = self.table.snapshot(retain=None), dict(self.written)
        else:
            self.model.rows = before

    def _next_place(self) -> Path:
        self.places += 1
        return self.directory / f"t{self.places}"

    def _go_on_in(self, clone: weir.Table, place: Path, rows: dict[Key, Values]) -> None:
        if self.ours is not None:
            self._leave_ours()
        self.library_closes(random.Random(0))
        self.table, self.place, self.is_clone = clone, place, True
        self.model.rows, self.written, self.fed = rows, dict(rows), dict(rows)
        self.feed_token = clone.snapshot(retain=None)
        self.versions, self.ids, self.snapshots = {}, {}, []

    # Plain Lance

    def lance_alters(self, chance: random.Random) -> None:
        """As a job of Lance does that knows nothing of logs; swaps go by a third name."""
        alteration, shape = self._alteration(chance)
        dataset = lance.dataset(str(self.place))
        if "drop" in alteration:
            self._before_ids_are_given_out_again(dataset, alteration["drop"])
            dataset.drop_columns(alteration["drop"])
            if "add" in alteration:
                dataset.add_columns([pa.field(one.name, one.type) for one in alteration["add"]])
        elif "add" in alteration:
            dataset.add_columns([pa.field(one.name, one.type) for one in alteration["add"]])
        else:
            names = alteration["rename"]
            steps = [*((old, f"{old}_") for old in names), *((f"{old}_", new) for old, new in names.items())]
            for old, new in steps:
                change: Any = {"path": old, "name": new}
                dataset.alter_columns(change)
        self._altered(shape)

    def _before_ids_are_given_out_again(self, dataset: lance.LanceDataset, names: list[str]) -> None:
        """Have the library flush what it has: a column of the same id and name would get its values."""
        self.library_closes(random.Random(0))
        ids = {one.id() for one in dataset.lance_schema.fields() if one.name() in names}
        self.ids_given_out |= ids
        stored = [*unmerged_columns(self.place), *unflushed_columns(self.place)]
        if any(births.get(number, "marked") is None for births in stored for number in ids):
            # Rows without a mark go by the time of their file: that of the kernel's last tick, or a second.
            time.sleep(_TICK_SECONDS if isinstance(self.place, Path) else 1)

    def _is_stale(self, stored: Iterable[Births]) -> bool:
        """Whether a column is stored that has the id of another one by now: the library confuses them."""
        births, _ = columns_now(self.place)
        return any(
            number in births and (births[number] != birth or (birth is None and number in self.ids_given_out))
            for one in stored
            for number, birth in one.items()
        )

    def _is_narrower(self, stored: Iterable[Mapping[int, str]]) -> bool:
        """Whether a column is stored in another type than it has by now: the library stops at it."""
        _, now = columns_now(self.place)
        widened = {str(kind) for kind in WIDER}
        return any(
            kind in widened and now.get(number, kind) != kind
            for one in stored
            for number, kind in one.items()
        )

    def _alteration(self, chance: random.Random) -> tuple[dict[str, Any], Shape]:
        shape, columns = self.model.shape, self.model.shape.columns
        what = chance.choice(["add", "add", "drop", "replace", "replace", "rename", "swap"])
        if what == "drop" and len(columns) > 1:
            gone = chance.choice(columns)
            left = tuple(one for one in columns if one is not gone)
            return {"drop": [gone.name]}, Shape(shape.key_types, left)
        if what == "rename":
            names = {chance.choice(columns).name: self._free_name(chance)}
            return {"rename": names}, shape.renamed(names)
        if what == "swap" and len(columns) > 1:
            one, other = chance.sample(columns, 2)
            names = {one.name: other.name, other.name: one.name}
            return {"rename": names}, shape.renamed(names)
        self.model.columns_made += 1
        if what == "replace" and columns:
            # The newest, whose id plain Lance may give out again; under its name or another one.
            gone, left = columns[-1], columns[:-1]
            name = chance.choice([gone.name, self._free_name(chance)])
            made = Column(self.model.columns_made, name, chance.choice([gone.type, chance.choice(TYPES)]))
            alteration = {"drop": [gone.name], "add": [pa.field(made.name, made.type)]}
            return alteration, Shape(shape.key_types, (*left, made))
        made = Column(self.model.columns_made, self._free_name(chance), chance.choice(TYPES))
        return {"add": [pa.field(made.name, made.type)]}, Shape(shape.key_types, (*columns, made))

    def _free_name(self, chance: random.Random) -> str:
        """Return a name that no column has; one may have had it."""
        taken = {one.name for one in self.model.shape.columns}
        return chance.choice([name for name in (f"c{number}" for number in range(12)) if name not in taken])

    def _altered(self, shape: Shape) -> None:
        self.model.shape = shape

    def lance_merge_inserts(self, chance: random.Random) -> None:
        self._settle_half_merged()
        shape = self.model.shape
        rows = self.model.new_rows(self._some(chance))
        fresh = unmerged_keys(self.place, list(shape.key_names))
        dataset = lance.dataset(str(self.place))
        upsert = dataset.merge_insert(list(shape.key_names))
        upsert.when_matched_update_all().when_not_matched_insert_all().execute(
            shape.table(rows).select(dataset.schema.names)
        )
        self.model.apply({key: row for key, row in rows.items() if key not in fresh})

    def lance_deletes(self, chance: random.Random) -> None:
        self._settle_half_merged()
        shape = self.model.shape
        fresh = unmerged_keys(self.place, list(shape.key_names))
        keys = self._some(chance)
        lance.dataset(str(self.place)).merge_insert(list(shape.key_names)).when_matched_delete().execute(
            shape.keys(keys)
        )
        self.model.apply({key: None for key in keys if key not in fresh})

    def lance_updates(self, chance: random.Random) -> None:
        self._settle_half_merged()
        shape = self.model.shape
        counts = [one for one in shape.columns if one.type == pa.int64()]
        if not counts:
            return
        column = chance.choice(counts)
        fresh = unmerged_keys(self.place, list(shape.key_names))
        lance.dataset(str(self.place)).update({column.name: f"{column.name} + 1"})
        for key, row in self.model.rows.items():
            if key not in fresh and row.get(column.id) is not None:
                self.model.rows[key] = {**row, column.id: row[column.id] + 1}

    def lance_compacts(self, chance: random.Random) -> None:
        dataset = lance.dataset(str(self.place))
        dataset.optimize.compact_files(target_rows_per_fragment=1000)
        if self.borrows:
            # Its indexes may be out of the library's reach now.
            self.table.maintenance.repair()

    def lance_indexes(self, chance: random.Random) -> None:
        dataset = lance.dataset(str(self.place))
        column = chance.choice([*self.model.shape.key_names, *(one.name for one in self.model.shape.columns)])
        if pa.types.is_primitive(dataset.schema.field(column).type):
            dataset.create_scalar_index(column, "BTREE", replace=True)

    def lance_optimizes_indexes(self, chance: random.Random) -> None:
        lance.dataset(str(self.place)).optimize.optimize_indices()

    def lance_cleans_up(self, chance: random.Random) -> None:
        if self.copied_branch:
            return  # the library looks for a branch where it made it
        lance.dataset(str(self.place)).cleanup_old_versions(timedelta(0), delete_unverified=False)

    def lance_restores(self, chance: random.Random) -> None:
        """Take back what plain Lance did since a version after which nothing was merged."""
        self._settle_half_merged()
        shape = self.model.shape
        names = list(shape.key_names)
        now = lance.dataset(str(self.place))
        marks = sorted(map(str, library.details_of(self.place).merged_generations))
        candidates = [
            version
            for version, (then, merged) in self.versions.items()
            if then == shape and merged == marks and version < now.version
        ]
        stored = {one["version"] for one in now.versions()}
        candidates = [version for version in candidates if version in stored]
        if not candidates:
            return
        old = lance.dataset(str(self.place), version=chance.choice(candidates))
        rows = {shape.key_of(row): shape.values_of(row) for row in old.to_table().to_pylist()}
        fresh = unmerged_keys(self.place, names)
        old.restore()  # type: ignore[no-untyped-call]
        kept = {key: row for key, row in self.model.rows.items() if key in fresh}
        self.model.rows = {**{key: row for key, row in rows.items() if key not in fresh}, **kept}

    def _settle_half_merged(self) -> None:
        """Finish a merge that died after its deletes: until then the base table lacks what it did delete."""
        if library.details_of(self.place).merged_generations:
            self.table.maintenance.merge()

    # What is compared

    def note_version(self) -> None:
        """Remember which marks the newest version of the base table has."""
        version = library.version_of(self.place)
        marks = sorted(map(str, library.details_of(self.place).merged_generations))
        self.versions[version] = (self.model.shape, marks)

    def state(self) -> object:
        """Return what decides what a check finds, for who need not check twice; None where it is elsewhere.

        Many steps do nothing, since there is nothing to merge, no writer open, no column of the kind.
        """
        if not isinstance(self.place, Path):
            return None
        return self.model.shape, dict(self.model.rows), _files_below(str(self.place))

    def check(self, *, anew: bool, feed: bool, asked: int = 0) -> None:
        """Compare everybody with the dict. ``asked`` says for which rows a filter asks."""
        if anew:
            default_context().cache.clear()
        table = weir.open(self.place, fsync=False) if anew else self.table
        self._compare("Weir's scan", table.scan().to_table())
        names = list(self.model.shape.key_names)
        found = table.get(self.model.shape.keys(self.keys))
        self._compare("Weir's get", found)
        if table.scan().count() != len(self.model.rows):
            raise DifferenceError("Weir's count differs")
        self._check_filter(table, random.Random(asked))
        if (
            not unflushed_keys(self.place, names)
            and not self._is_stale(unmerged_columns(self.place))
            and not self._is_narrower(unmerged_types(self.place))
        ):
            self._compare("the library's scan", library.scan(self.place))
        if anew:
            self._check_snapshots(table)
        if feed:
            self._check_feed()

    def _check_filter(self, table: weir.Table, chance: random.Random) -> None:
        """Compare what a filter by one column finds: its nulls, or what is equal to a value or above."""
        if not self.model.shape.columns:
            return
        column = chance.choice(self.model.shape.columns)
        held = {key: row[column.id] for key, row in self.model.expected().items()}
        values = [value for value in held.values() if isinstance(value, int | float | str)]
        if not values or chance.random() < 0.3:
            condition, found = "IS NULL", [key for key, value in held.items() if value is None]
        else:
            value, sign = chance.choice(values), chance.choice(["=", ">="])
            matches = operator.eq if sign == "=" else operator.ge
            condition = f"{sign} {value!r}"
            found = [key for key, one in held.items() if one is not None and matches(one, value)]
        rows = {key: self.model.rows[key] for key in found}
        shown = table.scan(filter=f"{column.name} {condition}")
        who = f"Weir's scan of {column.name} {condition}"
        self._compare(who, shown.to_table(), replace(self.model, rows=rows))
        if shown.count() != len(rows):
            raise DifferenceError(f"{who} differs by its count")

    def _check_snapshots(self, table: weir.Table) -> None:
        for one in list(self.snapshots):
            token, model = one
            try:
                self._compare("a snapshot's scan", table.scan(at=token).to_table(), model)
                self._compare("a snapshot's get", table.get(model.shape.keys(self.keys), at=token), model)
            except SnapshotExpiredError:
                self.snapshots.remove(one)

    def _compare(self, who: str, found: pa.Table, model: Model | None = None) -> None:
        model = model or self.model
        shape, expected = model.shape, model.expected()
        missing = set(shape.schema.names) - set(found.schema.names)
        if missing:
            raise DifferenceError(f"{who} lacks the columns {sorted(missing)}")
        rows = found.select(shape.schema.names).to_pylist()
        shown = {shape.key_of(row): shape.values_of(row) for row in rows}
        if len(shown) != len(rows):
            raise DifferenceError(f"{who} has a key twice")
        if shown == expected:
            return
        raise DifferenceError(f"{who}: " + "; ".join(_differences(shape, shown, expected)))

    def _feed(self, table: weir.Table) -> weir.ChangeFeed:
        """Return what has come since the last look; with the rows before it, where they can still be read.

        What a feed without them has reached tells no version of the base table.
        """
        with suppress(SnapshotExpiredError, InputError):
            # A batch for each log entry: what is before one has come with another one.
            return table.changes(self.feed_token, before=True, batch_rows=1)
        return table.changes(self.feed_token)

    def _check_feed(self) -> None:
        table = weir.open(self.place, fsync=False)
        shape = self.model.shape
        came: dict[Key, Values | None] = {}
        try:
            for batch in self._feed(table):
                for row in batch.rows.to_pylist():
                    key, old = shape.key_of(row), row.get("_before")
                    if "_before" in row and key in came and (old and shape.values_of(old)) != came[key]:
                        raise DifferenceError(f"the feed has {old} before {key}, and not {came[key]}")
                    came[key] = None if row["_op"] == "delete" else shape.values_of(row)
                self.fed.update(came)
                self.feed_token = batch.token
        except SnapshotExpiredError:
            self.feed_token = table.snapshot(retain=None)
            self.fed = dict(self.written)
            return
        ids = [one.id for one in shape.columns]
        expected = {key: row and {one: row.get(one) for one in ids} for key, row in self.written.items()}
        fed = {key: row and {one: row.get(one) for one in ids} for key, row in self.fed.items()}
        if fed != expected:
            keys = [key for key in expected if fed.get(key) != expected[key]]
            raise DifferenceError(
                f"the feed: {[(key, fed.get(key), expected[key]) for key in keys[:3]]}, shape {shape.columns}"
            )

    def settle(self) -> None:
        """Have everything merged, and compare with the base table alone."""
        random_ = random.Random(0)
        self.library_closes(random_)
        self.recover(random_)
        for writer in self.left:
            library.close_quietly(writer)
        self.left.clear()
        self.check(anew=True, feed=True)
        self.table.maintenance.merge()
        self.check(anew=True, feed=False)
        self._compare("the base table", lance.dataset(str(self.place)).to_table())


def _files_below(root: str) -> dict[str, int]:
    """Return path and inode of each file, none of which changes in its place.

    The library's writers may be at work meanwhile.
    """
    found, directories = {}, [root]
    while directories:
        with suppress(FileNotFoundError), os.scandir(directories.pop()) as entries:
            for one in entries:
                if one.is_dir(follow_symlinks=False):
                    directories.append(one.path)
                else:
                    found[one.path] = one.inode()
    return found


def _field_ids(dataset: lance.LanceDataset) -> set[object]:
    """Return names with ids of a dataset's columns; the tombstones have a name alone."""
    births = marks_of(dataset)
    fields = ((one.name(), one.id()) for one in dataset.lance_schema.fields())
    return {name if name == "_tombstone" else (name, number, births[number]) for name, number in fields}


def _differences(shape: Shape, shown: Mapping[Key, Values], expected: Mapping[Key, Values]) -> Iterable[str]:
    for key in sorted({*shown, *expected}, key=str):
        if shown.get(key) == expected.get(key):
            continue
        if key not in expected:
            yield f"{key} is there"
        elif key not in shown:
            yield f"{key} is missing"
        else:
            for one in shape.columns:
                if shown[key][one.id] != expected[key][one.id]:
                    yield f"{key}.{one.name} is {shown[key][one.id]!r} and not {expected[key][one.id]!r}"
