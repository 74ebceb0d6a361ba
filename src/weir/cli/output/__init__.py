"""The output of commands: text for people, JSON for programs.

A command does its work and hands the result to an :class:`Output`; nothing else writes to standard
output. Notes, progress and errors go to standard error. A result that takes more than a few lines of
text has a module of its own, ``*_text.py``.
"""

from __future__ import annotations

from weir.cli.output.interface import Output, note

__all__ = ["Output", "note"]
