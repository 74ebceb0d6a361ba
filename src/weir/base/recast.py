"""Rewriting columns of the base table in a wider type, beside the existing data.

Every fragment gets one more data file with the columns in their new type, and its older files give them up:
in Lance's words, the file's field is ``-2``. Other columns stay where they are.

The library's own cast gives the column a new field id, and is refused on a table with a MemWAL index, since
rows in the log cannot be matched to that id. Here the field keeps its id: what a log or a generation has of
it is cast when it is read or merged, also after several casts, and after a restore of the version before.
The library's writers and LSM readers stop as long as there is such a value, naming the column and both types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from uuid import uuid4

import lance
import pyarrow as pa
from lance.file import LanceFileWriter
from lance.fragment import DataFile, FragmentMetadata, LanceFragment, write_fragments

from weir.base.dataset import library_options
from weir.base.durability import sync_objects
from weir.base.file_checksums import refuse_damaged
from weir.base.library_errors import LIBRARY_ERRORS, storage_failure
from weir.base.schema import all_field_ids
from weir.base.scratch import scratch_directory
from weir.errors import SchemaError
from weir.schema.list_cast import cast_array
from weir.storage.interface import ObjectStore

__all__ = ["Recast"]

_GONE = -2
"""Marks a field of a data file that is now in another file."""
_BATCH_ROWS = 65_536


class Recast:
    """Columns of a table in a wider type, fragment by fragment.

    What has been written for a fragment is reused when the same fragment comes again, as it does where a
    commit is tried again after a lost race.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    columns : mapping of str to Field
        The columns in their new types, by the names that they have now.
    ids : mapping of str to int
        The field ids of these columns and of all their parts, by path.
    """

    def __init__(self, store: ObjectStore, columns: Mapping[str, pa.Field], ids: Mapping[str, int]) -> None:
        self._store = store
        self._names = list(columns)
        self._schema = pa.schema([field.with_name(name) for name, field in columns.items()])
        self._ids = ids
        self._written: dict[tuple[object, ...], DataFile] = {}
        self._layouts: dict[str, DataFile] = {}

    def fragments(self, dataset: lance.LanceDataset) -> list[FragmentMetadata]:
        """Return the fragments of a dataset with the columns in their new types.

        Raises
        ------
        SchemaError
            A value does not fit the new type, or a fragment is of a format that takes no more files.
        CorruptionError
            A file is damaged, as far as there are checksums.
        StorageError
            The store failed.
        """
        return [self._recast(fragment) for fragment in dataset.get_fragments()]

    def discard(self) -> None:
        """Delete the files that have been written."""
        self._store.delete([f"data/{file.path}" for file in self._written.values()])
        self._written.clear()

    def _recast(self, fragment: LanceFragment) -> FragmentMetadata:
        metadata = fragment.metadata
        before: Sequence[DataFile] = metadata.files
        known = (fragment.fragment_id, metadata.physical_rows, *(file.path for file in before))
        written = self._written.get(known)
        if written is None:
            files = {f"data/{file.path}" for file in before}
            refuse_damaged(self._store, files, doing="widening")
            written = self._written[known] = self._write(fragment, before[0])
        moved = set(written.fields)
        kept = []
        for file in before:
            fields = [_GONE if field in moved else field for field in file.fields]
            if any(field != _GONE for field in fields):
                kept.append(_with_fields(file, fields))
        metadata.files = [*kept, written]
        return metadata

    def _write(self, fragment: LanceFragment, like: DataFile) -> DataFile:
        if not like.file_major_version:
            raise SchemaError(
                "the table has data in Lance's first file format, in which columns cannot be widened",
                where=", ".join(self._names),
                hint="Rewrite the table in a newer format",
            )
        version = f"{like.file_major_version}.{like.file_minor_version}"
        layout = self._layout(version)
        name = f"{uuid4().hex}.lance"
        path = f"data/{name}"
        try:
            with LanceFileWriter(
                f"{self._store.uri}/data/{name}",
                self._schema,
                version=version,
                storage_options=library_options(self._store),
            ) as writer:
                for batch in self._batches(fragment):
                    writer.write_batch(batch)
        except LIBRARY_ERRORS as error:
            self._store.delete([path])
            if isinstance(error, SchemaError):
                raise
            raise storage_failure(error, "writing wider columns", where=self._store.uri) from error
        sync_objects(self._store, [path])
        found = self._store.head(path)
        return DataFile(
            name,
            list(layout.fields),
            list(layout.column_indices),
            like.file_major_version,
            like.file_minor_version,
            found.size if found is not None else None,
        )

    def _batches(self, fragment: LanceFragment) -> Iterator[pa.RecordBatch]:
        # Deleted rows are included: values in a file are found by row position.
        scanner = fragment.scanner(
            columns=self._names, with_row_id=True, include_deleted_rows=True, batch_size=_BATCH_ROWS
        )
        for batch in scanner.to_batches():
            yield pa.record_batch(
                [_cast(batch.column(field.name), field) for field in self._schema], schema=self._schema
            )

    def _layout(self, version: str) -> DataFile:
        """Return which columns of a file hold which fields, as the library lays them out."""
        layout = self._layouts.get(version)
        if layout is None:
            # With a row, since the library makes no file without; of nulls, whether the columns allow them or
            # not.
            schema = pa.schema([field.with_nullable(True) for field in self._schema])
            row = pa.table([pa.nulls(1, field.type) for field in schema], schema=schema)
            with scratch_directory() as scratch:
                (made,) = write_fragments(
                    row, str(scratch), schema=schema, mode="create", data_storage_version=version
                )
            by_number = {number: self._ids[path] for path, number in all_field_ids(schema).items()}
            layout = _with_fields(made.files[0], [by_number[number] for number in made.files[0].fields])
            self._layouts[version] = layout
        return layout


def _with_fields(file: DataFile, fields: list[int]) -> DataFile:
    return DataFile(
        file.path,
        fields,
        list(file.column_indices),
        file.file_major_version,
        file.file_minor_version,
        file.file_size_bytes,
        file.base_id,
    )


def _cast(values: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return cast_array(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"column {field.name!r} has a value that does not fit {field.type}: {error}",
            where=field.name,
            hint="Nothing was changed",
        ) from error
