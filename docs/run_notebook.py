"""Run the notebook of the first hour and keep what it prints: ``python -m docs.run_notebook``."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["NOTEBOOK", "executed"]

NOTEBOOK = Path(__file__).with_name("first-hour.ipynb")


def executed(notebook: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """Return a notebook with the outputs of a run of its cells, in their order, in one namespace.

    Parameters
    ----------
    notebook : mapping
        The notebook, as its JSON has it.
    directory : Path
        An empty directory to run it in.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    number = 0
    cells = []
    with contextlib.chdir(directory):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                number += 1
                outputs = _outputs("".join(cell["source"]), namespace, number)
                cell = {**cell, "execution_count": number, "outputs": outputs}
            cells.append(cell)
    return {**notebook, "cells": cells}


def _outputs(source: str, namespace: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Run a cell; what it prints is one output, and the value of its last line another."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    outputs: list[dict[str, Any]] = []
    value = None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, f"cell {number}", "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), namespace)
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        outputs.append(
            {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}
        )
    return outputs


def main() -> None:
    """Write the outputs into the notebook."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    # Tables that are not closed let go of their files a little later.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        done = executed(notebook, Path(directory))
    NOTEBOOK.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("TZ", "UTC")
    main()
