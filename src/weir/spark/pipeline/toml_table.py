"""Strict reading of TOML tables: an unknown key or a value of the wrong type is an error.

Errors name the file, the table and the key, ``pipeline.toml: services.merge``, and for an unknown key the
most similar known one.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from weir.engine.durations import parse_duration
from weir.errors import InputError, OptionError

__all__ = ["TomlTable", "read_toml"]

_OFF = "off"
_TYPES: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "a table",
}

Value = TypeVar("Value")


def read_toml(path: Path, known: Collection[str]) -> TomlTable:
    """Read a file.

    Parameters
    ----------
    path : Path
        The file.
    known : collection of str
        The keys it may have.

    Raises
    ------
    OptionError
        If it cannot be read, is not TOML, or has an unknown key.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"the file cannot be read: {error.strerror}", where=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise OptionError(f"the file is no TOML: {error}", where=str(path)) from error
    return TomlTable.of(values, path.name, known)


@dataclass(frozen=True, slots=True)
class TomlTable:
    """A TOML table. Made by :func:`read_toml` and :meth:`table`, which check its keys.

    Parameters
    ----------
    values : mapping
        The values in the file.
    file : str
        The file, for error messages.
    name : str
        The table in the file; empty for the whole file.
    """

    values: Mapping[str, Any]
    file: str
    name: str = ""

    @classmethod
    def of(
        cls, values: Mapping[str, Any], file: str, known: Collection[str] | None, name: str = ""
    ) -> TomlTable:
        """Return a table after checking its keys; None permits any keys.

        Raises
        ------
        OptionError
            If a key is unknown.
        """
        table = cls(values, file, name)
        for key in values:
            if known is not None and key not in known:
                near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
                guess = f"Did you mean {near[0]!r}? " if near else ""
                what = "key" if name else "table or key"
                raise OptionError(
                    f"unknown {what} {key!r}",
                    where=table.place(key),
                    hint=f"{guess}Known here: {', '.join(known)}",
                )
        return table

    def place(self, key: str) -> str:
        """Return the location of a key, for error messages."""
        return f"{self.file}: {self.name}.{key}" if self.name else f"{self.file}: {key}"

    def has(self, key: str) -> bool:
        """Whether the table has a key."""
        return key in self.values

    def table(self, key: str, known: Collection[str] | None) -> TomlTable:
        """Return a nested table, empty if it is missing.

        Raises
        ------
        OptionError
            If it is not a table, or has an unknown key.
        """
        inside = self._value(key, dict)
        return TomlTable.of(inside or {}, self.file, known, f"{self.name}.{key}" if self.name else key)

    def text(self, key: str) -> str | None:
        """Return a text, None if it is missing."""
        return self._value(key, str)

    def needed_text(self, key: str) -> str:
        """Return a required text."""
        value = self.text(key)
        if value is None:
            raise OptionError(f"{key!r} is missing", where=self.place(key))
        return value

    def switch(self, key: str, default: bool) -> bool:
        """Return a boolean."""
        value = self._value(key, bool)
        return default if value is None else value

    def whole_number(self, key: str, default: int) -> int:
        """Return an integer."""
        value = self._value(key, int)
        return default if value is None else value

    def number(self, key: str, default: float) -> float:
        """Return a number, integer or decimal."""
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._wrong(key, "a number")
        return value

    def duration(self, key: str, default: timedelta) -> timedelta:
        """Return a duration, written as text: ``"90s"``."""
        text = self._duration_text(key)
        return default if text is None else parse_duration(text, self.place(key))

    def duration_or_off(self, key: str, default: timedelta | None) -> timedelta | None:
        """Return a duration, None for ``"off"``."""
        text = self._duration_text(key)
        if text is None:
            return default
        return None if text == _OFF else parse_duration(text, self.place(key))

    def names(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; a single text is a list of one."""
        value = self.values.get(key, [])
        if isinstance(value, str):
            return (value,)
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            self._wrong(key, "text or a list of texts")
        return tuple(value)

    def options(self, key: str) -> dict[str, str]:
        """Return a table with any keys as Spark options: numbers and booleans become text."""
        table = self.table(key, None)
        return {name: table._option(name) for name in table.values}

    @contextmanager
    def placing(self, key: str | None = None) -> Iterator[None]:
        """Make input errors inside name the file, and the key if one is given."""
        try:
            yield
        except InputError as error:
            where = error.where or ""
            if where.startswith(f"{self.file}: "):
                raise
            if key is None:
                where = f"{self.file}: {where}"
            else:
                # What was read may say at which character.
                _, comma, detail = where.partition(",")
                where = f"{self.place(key)}{comma}{detail}"
            raise type(error)(error.message, where=where, hint=error.hint) from error

    def _duration_text(self, key: str) -> str | None:
        if self.has(key) and not isinstance(self.values[key], str):
            self._wrong(key, 'a length of time as text, such as "90s"')
        return self.text(key)

    def _option(self, key: str) -> str:
        value = self.values[key]
        if isinstance(value, bool):
            return "true" if value else "false"
        if not isinstance(value, str | int | float):
            self._wrong(key, "text, a number, true or false")
        return str(value)

    def _value(self, key: str, kind: type[Value]) -> Value | None:
        value = self.values.get(key)
        if value is None:
            return None
        if type(value) is not kind:
            self._wrong(key, _TYPES[kind])
        return value

    def _wrong(self, key: str, wanted: str) -> NoReturn:
        value = self.values[key]
        found = _TYPES.get(type(value), f"a {type(value).__name__}")
        raise OptionError(f"{key!r} has to be {wanted}, and is {found}", where=self.place(key))
