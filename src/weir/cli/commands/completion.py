"""The command that prints shell completion scripts."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer

# Typer's own options detect the shell and cannot be overridden.
from typer.completion import completion_init, get_completion_script  # type: ignore[attr-defined]

__all__ = ["completion", "prepare_completion"]

_VARIABLE = "_WEIR_COMPLETE"
"""What the script of a shell sets when it asks for words."""


class Shell(StrEnum):
    """The supported shells."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell.", show_default=False)],
) -> None:
    """Print a shell script that completes commands, options and files, for the shell's start-up file."""
    print(get_completion_script(prog_name="weir", complete_var=_VARIABLE, shell=shell.value))


def prepare_completion() -> None:
    """Be ready to answer, if it is the script of a shell that asks."""
    if _VARIABLE in os.environ:
        completion_init()
