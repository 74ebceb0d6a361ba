"""Values of options as people type them on the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from weir.errors import OptionError

__all__ = [
    "parse_names",
    "parse_pairs",
    "parse_parameters",
    "parse_storage_options",
    "parse_vector",
]


def parse_names(text: str, option: str) -> list[str]:
    """Return the names in a text with commas between them.

    Raises
    ------
    OptionError
        If a name is empty.

    Examples
    --------
    >>> parse_names("id, delay", "columns")
    ['id', 'delay']
    """
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise OptionError(f"names separated by commas are expected, got {text!r}", where=option)
    return names


def parse_pairs(texts: Sequence[str], option: str, example: str) -> dict[str, str]:
    """Return what stands before and after the ``=`` of each text.

    Raises
    ------
    OptionError
        If a text has no ``=`` or nothing on one side of it, or two have the same before it.

    Examples
    --------
    >>> parse_pairs(["old=new"], "rename", "OLD=NEW")
    {'old': 'new'}
    """
    pairs: dict[str, str] = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        if not name or not value:
            raise OptionError(f"--{option} takes {example}, got {text!r}", where=option)
        if name in pairs:
            raise OptionError(f"--{option} names {name!r} twice", where=option)
        pairs[name] = value
    return pairs


def parse_vector(text: str) -> object:
    """Return the vector, or the list of vectors, in a JSON text.

    Raises
    ------
    OptionError
        If it is no JSON array.

    Examples
    --------
    >>> parse_vector("[0.5, 1]")
    [0.5, 1]
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(
            f"the vector is not JSON: {error}", where="vector", hint="For example --vector '[0.1, 0.7]'"
        ) from error
    if not isinstance(value, list):
        raise OptionError(f"the vector must be a JSON array, got {text!r:.60}", where="vector")
    return value


def parse_storage_options(texts: Sequence[str]) -> dict[str, str]:
    """Return the storage options of texts like ``region=eu-west-1``.

    Raises
    ------
    OptionError
        If a text has no name or no ``=``. It shows the name only: values are secrets.
    """
    options = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            shown = repr(name.strip()) if equals else "one without '='"
            raise OptionError(
                f"a storage option is NAME=VALUE, got {shown}",
                where="storage-option",
                hint="For example --storage-option region=eu-west-1",
            )
        options[name.strip()] = value
    return options


def parse_parameters(texts: Sequence[str]) -> dict[str, Any]:
    """Return the parameters of texts like ``num_partitions=256``.

    A value that is JSON, such as a number, ``true`` or a list, is taken as that, and any other as text.

    Raises
    ------
    OptionError
        If a text has no name or no ``=``.

    Examples
    --------
    >>> parse_parameters(["num_partitions=256", "stem=false", "language=French"])
    {'num_partitions': 256, 'stem': False, 'language': 'French'}
    """
    parameters: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise OptionError(
                f"a parameter is NAME=VALUE, got {text!r}",
                where="param",
                hint="For example --param num_partitions=256",
            )
        try:
            parameters[name.strip()] = json.loads(value)
        except (ValueError, RecursionError):
            parameters[name.strip()] = value
    return parameters
