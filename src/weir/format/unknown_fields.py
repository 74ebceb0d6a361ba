"""Carrying unknown fields of a newer writer through an update made by the released library.

Weir's own updates keep unknown fields, since every decoded value carries them. The library decodes the
details of the MemWAL index in every commit that marks merge progress or changes an index, and writes what it
knows. It keeps all writer defaults: so what it would drop is noted there before it commits, and if that
process dies, a later one writes it back from there.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace

from weir.errors import CorruptionError
from weir.format import index_details
from weir.format.index_details import IndexCatchup, IndexDetails, MergedGeneration, ShardFieldSpec, ShardSpec

__all__ = ["NOTED", "carry_over", "has_unknown_fields", "noted", "restored"]

NOTED = "weir.unknown_fields"
"""Name of the writer default with what commits of the library may drop, while there are any."""


def noted(details: IndexDetails) -> IndexDetails:
    """Return the details with a note of their unknown fields; without any, or with that note, the same.

    The note is the details themselves, serialised, without their shard snapshots and writer defaults.
    """
    whole = _from_note(details)
    if not has_unknown_fields(whole):
        return details
    plain = replace(whole, inline_snapshots=None, writer_config_defaults={}, snapshot_ts_millis=0)
    note = base64.b64encode(index_details.encode(plain)).decode("ascii")
    return replace(whole, writer_config_defaults={**whole.writer_config_defaults, NOTED: note})


def restored(details: IndexDetails) -> IndexDetails:
    """Return the details with the unknown fields that a note in them has, and without the note."""
    whole = _from_note(details)
    left = {name: value for name, value in whole.writer_config_defaults.items() if name != NOTED}
    return replace(whole, writer_config_defaults=left)


def _from_note(details: IndexDetails) -> IndexDetails:
    note = details.writer_config_defaults.get(NOTED)
    if note is None:
        return details
    try:
        data = base64.b64decode(note, validate=True)
    except ValueError as error:
        raise CorruptionError("the note of unknown fields cannot be read", where=NOTED) from error
    return carry_over(details, index_details.decode(data, where=NOTED))


def has_unknown_fields(details: IndexDetails) -> bool:
    """Whether any part of the details has fields that Weir does not know.

    Examples
    --------
    >>> has_unknown_fields(IndexDetails())
    False
    """
    return bool(
        details.unknown_fields
        or any(one.unknown_fields for one in details.merged_generations)
        or any(
            spec.unknown_fields or any(one.unknown_fields for one in spec.fields)
            for spec in details.shard_specs
        )
        or any(
            one.unknown_fields or any(merged.unknown_fields for merged in one.caught_up)
            for one in details.index_catchup
        )
    )


def carry_over(details: IndexDetails, older: IndexDetails) -> IndexDetails:
    """Return ``details`` with the unknown fields of ``older`` where they have none.

    Parts are matched by what identifies them: specs by id, fields by theirs, merge progress by shard,
    catch-up by index. A part that ``details`` no longer has stays away.

    Parameters
    ----------
    details : IndexDetails
        The stored details.
    older : IndexDetails
        The details before the library changed them.
    """
    specs = {spec.spec_id: spec for spec in older.shard_specs}
    catchups = {one.index_name: one for one in older.index_catchup}
    return replace(
        details,
        unknown_fields=details.unknown_fields or older.unknown_fields,
        shard_specs=tuple(_spec(spec, specs.get(spec.spec_id)) for spec in details.shard_specs),
        merged_generations=_merged(details.merged_generations, older.merged_generations),
        index_catchup=tuple(_catchup(one, catchups.get(one.index_name)) for one in details.index_catchup),
    )


def _spec(spec: ShardSpec, older: ShardSpec | None) -> ShardSpec:
    if older is None:
        return spec
    fields = {one.field_id: one for one in older.fields}
    return replace(
        spec,
        unknown_fields=spec.unknown_fields or older.unknown_fields,
        fields=tuple(_field(one, fields.get(one.field_id)) for one in spec.fields),
    )


def _field(field: ShardFieldSpec, older: ShardFieldSpec | None) -> ShardFieldSpec:
    if older is None:
        return field
    return replace(field, unknown_fields=field.unknown_fields or older.unknown_fields)


def _catchup(catchup: IndexCatchup, older: IndexCatchup | None) -> IndexCatchup:
    if older is None:
        return catchup
    return replace(
        catchup,
        unknown_fields=catchup.unknown_fields or older.unknown_fields,
        caught_up=_merged(catchup.caught_up, older.caught_up),
    )


def _merged(
    merged: Sequence[MergedGeneration], older: Sequence[MergedGeneration]
) -> tuple[MergedGeneration, ...]:
    unknown = {one.shard_id: one.unknown_fields for one in older}
    return tuple(
        replace(one, unknown_fields=one.unknown_fields or unknown.get(one.shard_id, b"")) for one in merged
    )
