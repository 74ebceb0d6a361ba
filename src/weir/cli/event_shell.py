"""The shell of an event store: commands line by line, with history, completion, tables and charts."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from weir.cli.options import output_for
from weir.errors import WeirError

if TYPE_CHECKING:
    from weir.events import EventStore

__all__ = ["completions", "run_shell"]

_HISTORY = Path.home() / ".weir_events_history"
_ENDS = ("exit", "quit")


def completions(store: EventStore, text: str) -> list[str]:
    """Return the words that a piece of a word may become: keywords, types, fields and materialisations."""
    from weir.events.language.parser import keywords

    types = store.types()
    names = {
        *types,
        *store.materialization_names(),
        *(field for kind in types.values() for field in kind.fields),
    }
    words = [*keywords(), *sorted(names)]
    return [word for word in words if text and word.lower().startswith(text.lower())]


def run_shell(store: EventStore) -> None:
    r"""Read commands until the input ends; a line that ends with ``\`` goes on with the next."""
    interactive = sys.stdin.isatty()
    if interactive:
        _prepare(store)
    waiting = ""
    while True:
        try:
            line = input(("... " if waiting else "weir> ") if interactive else "")
        except EOFError:
            break
        except KeyboardInterrupt:
            waiting = ""
            print()
            continue
        waiting = f"{waiting}\n{line}" if waiting else line
        if waiting.endswith("\\"):
            waiting = waiting[:-1]
            continue
        text, waiting = waiting.strip(), ""
        if text.lower() in _ENDS:
            break
        if text:
            _run(store, text)
    if interactive:
        _keep_history()


def _run(store: EventStore, text: str) -> None:
    from weir.events.charts import text_chart

    try:
        result = store.execute(text)
        if text.lower().startswith("plot"):
            print(text_chart(result.to_table()))
        elif hasattr(result, "to_table"):
            table = result.to_table()
            output_for(False).rows(iter(table.to_batches()), table.schema)
            for warning in result.warnings:
                print(warning)
        elif result is not None:
            print(result if isinstance(result, str) else result.version)
    except WeirError as error:
        print(f"error: {error}")


def _prepare(store: EventStore) -> None:
    with suppress(ImportError, OSError):
        import readline

        with suppress(FileNotFoundError):
            readline.read_history_file(_HISTORY)
        found: list[str] = []

        def complete(text: str, state: int) -> str | None:
            if state == 0:
                found[:] = completions(store, text)
            return found[state] if state < len(found) else None

        readline.set_completer(complete)
        readline.set_completer_delims(" \t\n,()[]=<>!;.")
        readline.parse_and_bind("tab: complete")


def _keep_history() -> None:
    with suppress(ImportError, OSError):
        import readline

        readline.set_history_length(1000)
        readline.write_history_file(_HISTORY)
