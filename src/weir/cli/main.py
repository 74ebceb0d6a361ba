"""The entry of the ``weir`` program: runs a command and turns failures into a line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import typer

from weir.cli.commands import app
from weir.errors import WeirError

__all__ = ["main"]

_FAILED = 2
_INTERRUPTED = 130
_BROKEN_PIPE = 141


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
        The exit code: 0 if all went well; 1 if the demo found a difference, a check an error, or what
        was inspected is broken; 2 if the command or its
        input was refused or failed, with one line on standard error; 130 if it was interrupted; 141 if
        whoever read the output stopped reading.
    """
    code = _run(arguments)
    if arguments is None:
        # Arrow reads ahead on threads of its own. One that calls back into Python while Python is
        # being torn down would abort the process, and with it the exit code.
        with suppress(OSError, AttributeError):
            sys.stderr.flush()
        os._exit(code)
    return code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = app(
            args=None if arguments is None else list(arguments), prog_name="weir", standalone_mode=False
        )
        if sys.stdout is not None:
            # None where the program was started without a standard output.
            sys.stdout.flush()
    except WeirError as error:
        return _refused(str(error))
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = "weir" if context is None else context.command_path
        return _refused(f"{error.format_message().rstrip('.')}. '{command} --help' says more")
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


def _refused(message: str) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return _FAILED


if __name__ == "__main__":
    main()
