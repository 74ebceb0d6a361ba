"""The request of an ``alter``, and the columns that result from it; without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from weir.base.schema import check_column_name, check_new_column, check_new_part
from weir.errors import SchemaError
from weir.format.widening import widened

__all__ = ["Alteration", "AlteredSchema"]


@dataclass(frozen=True, slots=True)
class AlteredSchema:
    """The columns of a table after an alteration.

    Parameters
    ----------
    schema : Schema
        The columns.
    origins : mapping of str to str
        For every existing column, and every part of one: its new path and its old path.
    widened : frozenset of str
        The columns, by their names before, that are of a wider type now, or have a part that is.
    """

    schema: pa.Schema
    origins: Mapping[str, str]
    widened: frozenset[str]


@dataclass(frozen=True, slots=True)
class Alteration:
    """Columns to add, drop, rename and widen, all at once. Made by :meth:`of`.

    Parameters
    ----------
    add : tuple of Field, default ()
        New columns, null in every existing row. A name with dots means a field of a struct.
    drop : tuple of str, default ()
        Columns to drop, by their paths: names with dots between them.
    rename : mapping of str to str, default {}
        New names by path. All names change at the same time, so two columns can swap theirs.
    widen : mapping of str to DataType, default {}
        Wider types by path.

    Examples
    --------
    >>> schema = pa.schema([("id", pa.int64()), ("delay", pa.float32()), ("gate", pa.string())])
    >>> swapped = Alteration.of(rename={"delay": "gate", "gate": "delay"}).applied(schema, {})
    >>> swapped.schema.names, swapped.origins["gate"]
    (['id', 'gate', 'delay'], 'delay')
    """

    add: tuple[pa.Field, ...] = ()
    drop: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    widen: Mapping[str, pa.DataType] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        add: Any = None,
        drop: Any = None,
        rename: Any = None,
        widen: Any = None,
        *,
        besides: bool = False,
    ) -> Alteration:
        """Return what a caller asks for, checked as far as it can be without the table.

        ``besides`` says that something other than columns is altered too, so the columns may stay unchanged.

        Raises
        ------
        SchemaError
            An argument has the wrong kind, nothing is requested, or a column is mentioned twice.
        """
        made = cls(
            tuple(_as_field(one) for one in _sequence(add, "add", pa.Field, "pa.field(...)")),
            tuple(_sequence(drop, "drop", str, "a column name")),
            dict(_mapping(rename, "rename", str, "a new name")),
            dict(_mapping(widen, "widen", pa.DataType, "a pyarrow type such as pa.int64()")),
        )
        if not (besides or made.add or made.drop or made.rename or made.widen):
            raise SchemaError(
                "there is nothing to alter", where="alter", hint="Pass add, drop, rename or widen"
            )
        made._refuse_doubled()
        return made

    def _refuse_doubled(self) -> None:
        seen: dict[str, str] = {}
        asked = (
            ("dropped", self.drop),
            ("renamed", self.rename),
            ("widened", self.widen),
            ("added", [one.name for one in self.add]),
        )
        for doing, names in asked:
            for name in names:
                if name in seen:
                    raise SchemaError(
                        f"column {name!r} is {seen[name]} and {doing} in one alter",
                        where=name,
                        hint="Name a column once; a second alter can change it again",
                    )
                seen[name] = doing
        for name in seen:
            inside = next((other for other in seen if other.startswith(f"{name}.")), None)
            if inside is not None and seen[name] in ("dropped", "widened", "added"):
                raise SchemaError(
                    f"column {inside!r} is {seen[inside]}, and {name!r}, which it is a part of, is "
                    f"{seen[name]}, in one alter",
                    where=inside,
                    hint="Name a column, or its parts",
                )

    @property
    def touched(self) -> tuple[str, ...]:
        """The columns there are that change, by path."""
        return (*self.drop, *self.rename, *self.widen)

    def applied(self, schema: pa.Schema, needed: Mapping[str, str]) -> AlteredSchema:
        """Return the columns of a table afterwards.

        Parameters
        ----------
        schema : Schema
            The columns there are.
        needed : mapping of str to str
            Why a column must stay unchanged, by path.

        Raises
        ------
        SchemaError
            A column is unknown, or must stay unchanged; a name exists or cannot be one; a type is not a wider
            one; or a new column cannot be null.
        """
        known = dict(_walk(schema))
        for path in self.touched:
            if path not in known:
                raise SchemaError(
                    f"the table has no column {path!r}",
                    where=path,
                    hint=f"The columns are {', '.join(schema.names)}",
                )
            _refuse_needed(path, needed)
        for path, name in self.rename.items():
            # Arrow makes no field of every text.
            check_column_name(name)
            if "." in path:
                check_new_part(name)
            else:
                check_new_column(pa.field(name, pa.null()))
            if name == path.rpartition(".")[2]:
                raise SchemaError(
                    f"column {path!r} already has this name", where=path, hint="Leave it out of rename"
                )
        for one in self.add:
            _refuse_in_large_list(one.name, known)
        origins: dict[str, str] = {}
        builder = _Builder(self, origins)
        fields = builder.children(list(schema), None, None)
        if builder.missing_parents:
            path = builder.missing_parents[0]
            raise SchemaError(
                f"column {path!r} cannot be added: {path.rpartition('.')[0]!r} is not a struct of the table",
                where=path,
                hint="A dotted name means a field of an existing struct",
            )
        if not fields:
            raise SchemaError("a table needs at least one column", where=", ".join(self.drop))
        top = frozenset(path.split(".")[0] for path in self.widen)
        return AlteredSchema(pa.schema(fields, metadata=schema.metadata), origins, top)


class _Builder:
    """Rebuilds the fields, level by level."""

    def __init__(self, asked: Alteration, origins: dict[str, str]) -> None:
        self._asked = asked
        self._origins = origins
        self._added: dict[str | None, list[pa.Field]] = {}
        for one in asked.add:
            parent, _, name = one.name.rpartition(".")
            self._added.setdefault(parent or None, []).append(one.with_name(name))

    @property
    def missing_parents(self) -> list[str]:
        """The new columns that are part of nothing there is."""
        return [f"{parent}.{one.name}" for parent, fields in self._added.items() for one in fields]

    def children(self, fields: Sequence[pa.Field], before: str | None, after: str | None) -> list[pa.Field]:
        """Return the fields of a struct, or the columns, with paths before and after the alteration."""
        made: dict[str, pa.Field] = {}
        for one in fields:
            path = one.name if before is None else f"{before}.{one.name}"
            if path in self._asked.drop:
                continue
            name = self._asked.rename.get(path, one.name)
            if name in made:
                raise _exists(name, after)
            now = name if after is None else f"{after}.{name}"
            made[name] = self._changed(one, path, now).with_name(name)
        for one in self._added.pop(before, ()):
            _check_new(one)
            if one.name in made:
                raise _exists(one.name, after)
            made[one.name] = one
        return list(made.values())

    def _changed(self, one: pa.Field, path: str, now: str) -> pa.Field:
        self._origins[now] = path
        kind = one.type
        if path in self._asked.widen:
            kind = widened(kind, self._asked.widen[path], path)
            for inner, _ in _walk(pa.schema([one.with_name(path)])):
                self._origins[now + inner[len(path) :]] = inner
        elif pa.types.is_struct(kind):
            fields = self.children([kind.field(at) for at in range(kind.num_fields)], path, now)
            if not fields:
                raise SchemaError(
                    f"column {path!r} would be a struct without fields", where=path, hint="Drop all of it"
                )
            kind = pa.struct(fields)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            item = f"{path}.{kind.value_field.name}"
            if item in self._asked.drop or item in self._asked.rename:
                raise SchemaError(f"the values of the list {path!r} can only be widened", where=item)
            make = pa.large_list if pa.types.is_large_list(kind) else pa.list_
            kind = make(self._changed(kind.value_field, item, f"{now}.{kind.value_field.name}"))
        else:
            for inner, _ in _walk(pa.schema([one.with_name(path)])):
                if inner != path and inner in self._asked.touched:
                    raise SchemaError(f"column {path!r} of type {kind} has no parts to alter", where=inner)
                self._origins[now + inner[len(path) :]] = inner
        return one.with_type(kind)


def _walk(schema: pa.Schema) -> Iterable[tuple[str, pa.Field]]:
    """Yield every column and every part of one, with its path."""

    def visit(one: pa.Field, path: str) -> Iterable[tuple[str, pa.Field]]:
        yield path, one
        kind = one.type
        # As Lance counts fields: lists of a fixed size and dictionaries have no parts.
        if pa.types.is_fixed_size_list(kind) or pa.types.is_dictionary(kind):
            return
        for at in range(kind.num_fields):
            inner = kind.field(at)
            yield from visit(inner, f"{path}.{inner.name}")

    for one in schema:
        yield from visit(one, one.name)


def _refuse_needed(path: str, needed: Mapping[str, str]) -> None:
    for other, reason in needed.items():
        if path == other or path.startswith(f"{other}.") or other.startswith(f"{path}."):
            raise SchemaError(f"column {path!r} cannot be altered: {reason}", where=path)


def _refuse_in_large_list(path: str, known: Mapping[str, pa.Field]) -> None:
    """Refuse a field of structs in a large list: Lance could no longer read rows whose file lacks it."""
    parts = path.split(".")[:-1]
    for depth in range(1, len(parts) + 1):
        above = ".".join(parts[:depth])
        if above in known and pa.types.is_large_list(known[above].type):
            raise SchemaError(
                f"column {path!r} cannot be added: Lance reads no new fields in the large list {above!r}",
                where=path,
                hint="Add a column beside it",
            )


def _check_new(one: pa.Field) -> None:
    check_new_column(one)
    if not one.nullable:
        raise SchemaError(
            f"the new column {one.name!r} cannot be without nulls: it is null in all existing rows",
            where=one.name,
            hint="Add it as nullable",
        )


def _exists(name: str, inside: str | None) -> SchemaError:
    path = name if inside is None else f"{inside}.{name}"
    return SchemaError(
        f"the table has a column {path!r} already",
        where=path,
        hint="Choose another name, or rename or drop that one in the same alter",
    )


def _as_field(one: pa.Field) -> pa.Field:
    if pa.types.is_string_view(one.type) or pa.types.is_binary_view(one.type):
        return one.with_type(pa.string() if pa.types.is_string_view(one.type) else pa.binary())
    return one


def _sequence(given: Any, where: str, kind: type, meant: str) -> Sequence[Any]:
    if given is None:
        return ()
    if isinstance(given, (str, bytes, pa.Field, Mapping)) or not isinstance(given, Iterable):
        raise SchemaError(f"{where} is a list, not {given!r}", where=where, hint=f"Pass [{meant}]")
    items = list(given)
    for item in items:
        if not isinstance(item, kind):
            raise SchemaError(f"{where} takes {meant}, not {item!r}", where=where)
    return items


def _mapping(given: Any, where: str, kind: type, meant: str) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise SchemaError(f"{where} is a dict, not {given!r}", where=where, hint=f"Pass {{column: {meant}}}")
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, kind):
            raise SchemaError(
                f"{where} takes the name of a column and {meant}, not {name!r}: {value!r}", where=where
            )
    return given
