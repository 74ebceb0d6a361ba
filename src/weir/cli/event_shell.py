"""The shell of an event store: commands with history, completion, tables and charts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weir.cli.line_editor import line_editor
from weir.cli.options import output_for
from weir.errors import WeirError

if TYPE_CHECKING:
    from weir.events import EventStore

__all__ = ["completions", "run_shell"]

_HISTORY = ".weir_events_history"
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
    r"""Read commands until the input ends; a line that ends with ``\`` continues on the next."""
    with line_editor(_HISTORY, lambda text: completions(store, text)) as read_line:
        waiting = ""
        while True:
            try:
                line = read_line("... " if waiting else "weir> ")
            except EOFError:
                return
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
                return
            if text:
                _run(store, text)


def _run(store: EventStore, text: str) -> None:
    from weir.events.charts import text_chart
    from weir.events.language import tree
    from weir.events.language.parser import parse

    try:
        command = parse(text)
        result = store.execute(text)
        if isinstance(command, tree.Plot):
            print(text_chart(result.to_table()))
        elif isinstance(command, tree.Explain):
            print(result.explain())
        elif hasattr(result, "to_table"):
            table = result.to_table()
            output_for(False).rows(iter(table.to_batches()), table.schema)
            for warning in result.warnings:
                print(warning)
        elif result is not None:
            print(result if isinstance(result, str) else result.version)
    except WeirError as error:
        print(f"error: {error}")
