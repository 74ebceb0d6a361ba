"""The entry point of ``weir``: runs a command, and turns failures into a message and an exit code."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from functools import cache
from typing import Any

import typer

from weir.cli.commands import app
from weir.cli.commands.completion import prepare_completion
from weir.cli.printable_text import printable
from weir.errors import WeirError

__all__ = ["main"]

_FAILED = 2
_INTERRUPTED = 130
_BROKEN_PIPE = 141
_NEGATIVE = re.compile(r"such option: -\d")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``weir``.

    Parameters
    ----------
    arguments : sequence of str, optional
        What stands after ``weir`` on the command line. Default: those of this process, which then ends
        here.

    Returns
    -------
    int
        The exit code: 0 on success; 1 if the demo found a difference, a check found an error, or an inspected
        object is damaged; 2 if the command or its input was refused or failed, with one line on standard
        error; 130 if it was interrupted; 141 if the reader of the output stopped reading.
    """
    code = _run(arguments)
    if arguments is None:
        # Arrow reads ahead on its own threads. One that calls back into Python during its shutdown would
        # abort the process and lose the exit code.
        with suppress(OSError, AttributeError):
            sys.stderr.flush()
        os._exit(code)
    return code


def _run(arguments: Sequence[str] | None) -> int:
    prepare_completion()
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        code = _program(given[0] if given else "")(args=given, prog_name="weir", standalone_mode=False)
        if sys.stdout is not None:
            # None where the program was started without a standard output.
            sys.stdout.flush()
    except WeirError as error:
        from weir.cli.advice import error_for_shell

        return _refused(error_for_shell(error, _options(sys.argv[1:] if arguments is None else arguments)))
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = "weir" if context is None else context.command_path
        said = error.format_message().rstrip(".")
        if _NEGATIVE.search(said):
            return _refused(f"{said}. Write -- before a value that begins with a dash: {command} ... -- -5")
        return _refused(f"{said}{'' if said.endswith('?') else '.'} '{command} --help' says more")
    except (KeyboardInterrupt, typer.Abort):
        return _INTERRUPTED
    except BrokenPipeError:
        return _BROKEN_PIPE
    except OSError as error:
        # Whatever concerns the table or a file says so itself: this is the output.
        return _refused(f"the output cannot be written: {error.strerror or error}")
    except SystemExit as stop:
        # Both typer and rich leave the process when the output is closed.
        if isinstance(stop.__context__, BrokenPipeError):
            return _BROKEN_PIPE
        raise
    return code if isinstance(code, int) else 0


@cache
def _program(first: str = "") -> Any:
    """Return the command that the first argument names, or all of them, if it names none.

    To read the signatures of every one of them takes longer than what most do.
    """
    commands = [one for one in app.registered_commands if one.name == first]
    groups = [one for one in app.registered_groups if one.name == first]
    if not (commands or groups):
        return typer.main.get_command(app)
    asked_for = copy(app)
    asked_for.registered_commands, asked_for.registered_groups = commands, groups
    return typer.main.get_command(asked_for)


def _options(arguments: Sequence[str]) -> list[str]:
    """Return the options of the command that the arguments name, without their dashes."""
    command = _program(arguments[0] if arguments else "")
    for argument in arguments:
        found = command.commands.get(argument) if isinstance(command, typer.core.TyperGroup) else None
        if found is None:
            break
        command = found
    return [name.removeprefix("--") for one in command.params for name in one.opts if name.startswith("--")]


def _refused(message: str) -> int:
    print(f"error: {printable(' '.join(message.split()))}", file=sys.stderr)
    return _FAILED


if __name__ == "__main__":
    main()
