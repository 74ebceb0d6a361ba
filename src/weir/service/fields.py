"""Parsing of object members from clients: typed, without unknown members."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from weir.errors import InputError

__all__ = [
    "chosen",
    "digits",
    "flag",
    "given",
    "known_only",
    "mapping",
    "names",
    "number",
    "sequence",
    "whole",
]

_MOST_DIGITS = 20
_MOST_NAMES = 10_000


def known_only(body: Mapping[str, Any], known: frozenset[str], what: str) -> None:
    """Refuse unknown members: a misspelled one would be ignored.

    Raises
    ------
    InputError
        Naming the first one.
    """
    for name in body:
        if name not in known:
            raise InputError(f"{what} has no {name!r:.80}")


def given(body: Mapping[str, Any], name: str, default: object) -> object:
    """Return a member, or the default if it is missing or null."""
    value = body.get(name)
    return default if value is None else value


def flag(body: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """Return a boolean member."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InputError(f"{name} is true or false")
    return value


def whole(body: Mapping[str, Any], name: str, least: int, most: int, default: int) -> int:
    """Return an integer member within bounds."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{name} is a whole number from {least:,} to {most:,}")
    return value


def digits(text: str) -> int | None:
    """Parse an integer of up to 64 bits or a few more; None if it is not one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def chosen(value: object, choices: Collection[str], what: str) -> str:
    """Return one of several texts."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{what} is one of {', '.join(sorted(choices))}")
    return value


def number(value: object, what: str) -> float:
    """Return a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        raise InputError(f"{what} is a number")
    return float(value)


def sequence(value: object, what: str) -> list[Any]:
    """Return a list."""
    if not isinstance(value, list):
        raise InputError(f"{what} is a list")
    return value


def mapping(value: object, what: str) -> dict[str, Any]:
    """Return an object."""
    if not isinstance(value, dict):
        raise InputError(f"{what} is an object")
    return value


def names(value: object, what: str) -> tuple[str, ...]:
    """Return a list of texts."""
    found = sequence(value, what)
    if len(found) > _MOST_NAMES:
        raise InputError(f"{what} has at most {_MOST_NAMES:,} names")
    if not all(isinstance(one, str) for one in found):
        raise InputError(f"{what} is a list of names")
    return tuple(found)
