"""What SQL text demands of a parser, determined from its tokens before any parser runs: mostly its nesting.

The libraries that parse, plan and evaluate SQL recurse over the tree that it makes. Their parsers count
parentheses, but not chains: of ``1+1+1+...`` each sign is another level, and a few hundred of them use up
the stack of a thread, which ends the whole process. So text is measured here, by a count that is never
less than the depth of the tree: a list of values is one level however long it is, an operator is one more,
and so are parentheses, brackets and ``CASE``. ``AND`` and ``OR`` count for a tenth, since the libraries
walk along such chains without recursion.

Some forms are written out before they are planned, and what they are about with them: ``x BETWEEN a AND b``
is ``x >= a AND x <= b``, a short ``IN`` is equations, ``coalesce`` and ``CASE`` repeat what they test. Within
each other they double the work every time, so of those far fewer are let through. And a parser that gives up
at its 50th level tries other ways to read each level before: what nests by parentheses and signs stays below
that.

The parser takes all that follows ``IS [NOT] DISTINCT FROM`` for its right side, ``AND`` and ``OR`` included.
Where the types happen to allow it that means something else than SQL says, so it has to be in parentheses.

Dialects differ in where a text or a comment ends. Where that matters, all ways to read it are measured,
and the deepest counts.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from typing import ParamSpec, TypeVar

from weir.errors import InputError

__all__ = [
    "MAX_CHARACTERS",
    "MAX_DEPTH",
    "Nesting",
    "nesting",
    "on_a_deep_stack",
    "refuse_deep",
    "refuse_unsafe",
]

P = ParamSpec("P")
R = TypeVar("R")

MAX_DEPTH = 200
"""Levels that are let through. The libraries were seen to end a process from about 550 on."""
MAX_OPEN = 40
"""Parentheses, and signs before them, that may be open at once."""
MAX_REPEATING = 8
"""Levels of forms that repeat their operand that are let through."""
MAX_SUBQUERIES = 200
"""``SELECT``, ``JOIN`` and tables in a ``FROM`` list that are let through in all."""
MAX_CHARACTERS = 16 * 1024 * 1024
"""Length that is let through: a list of some 500,000 values."""

_STACK_BYTES = 64 * 1024 * 1024
_SHALLOW = 8
"""Levels that any stack has room for, also one of 128 KiB."""
_THREADS = 4
_ENOUGH = 2_000
"""Levels after which nothing more is counted."""
_LONGEST_KNOWN = 4_000
"""Longest text, in characters, whose nesting is remembered."""
_NUMBERS = re.compile(r"(?<!\w)[0-9]+")
_CHAINED = 10
"""How many of ``AND`` and ``OR`` count as one level."""

_OPENING = {"(": ")", "[": "]", "{": "}", "CASE": "END"}
_CLOSING = frozenset(_OPENING.values())
_TABLES = frozenset({"SELECT", "JOIN", "VALUES", "TABLE"})
_CLAUSES = frozenset({"WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "EXCEPT", "INTERSECT", "ON"})
_SEPARATORS = frozenset({",", ";", "WHEN", "THEN", "ELSE"}) | _TABLES | _CLAUSES

_REPEATING = frozenset({"BETWEEN", "IN", "EXISTS", "COALESCE", "NVL", "NVL2", "IFNULL", "NULLIF"})
_DISTINCT = ("IS", "DISTINCT", "FROM")

# A stretch of a list of literals, in one step: lists are long.
_LIST = r"(?P<list>(?:\s*(?:[+-]?[\d.]++|(?:[A-Za-z]++\s*+)?(?:'[^'\\$]*+')++)\s*+,)++)"
_STRINGS = {
    "plain": r"'[^']*(?:'|\Z)",
    "escape": r"(?<!\w)[eE]'(?:[^'\\]|\\.)*(?:'|\Z)|'[^']*(?:'|\Z)",
    "always": r"'(?:[^'\\]|\\.)*(?:'|\Z)",
}
_DOLLARS = r"|(?P<tag>\$\w*\$).*?(?:(?P=tag)|\Z)"
_COMMENTS = r"--[^\n]*|/\*.*?(?:\*/|\Z)"
_NESTED_COMMENTS = r"--[^\n]*"
_REST = (
    r"|(?P<operand>(?:[^\W\d]|[@#$])[\w$@]*|(?:\d[\w.]*|\.\d[\w.]*))"
    r"|\|\||::|<=>|->>|->|=>|<=|>=|<>|!=|==|[^\s\w]"
)


@lru_cache(maxsize=12)
def _tokens(strings: str, dollars: bool, nested: bool) -> re.Pattern[str]:
    comments = _NESTED_COMMENTS if nested else _COMMENTS
    quoted = rf"(?P<text>{_STRINGS[strings]}{_DOLLARS if dollars else ''}|\"[^\"]*(?:\"|\Z)|`[^`]*(?:`|\Z))"
    listed = _LIST + "|" if strings == "plain" and not dollars else ""
    return re.compile(rf"\s+|(?P<comment>{comments})|{listed}{quoted}{_REST}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Nesting:
    """The most that a text may demand of a parser.

    Parameters
    ----------
    depth : int
        Levels.
    opened : int
        Levels of them that a parser has open at once.
    repeating : int
        Levels of forms that repeat their operand.
    tables : int
        Places where tables are read.
    is_misread : bool, default False
        Whether an ``AND`` or ``OR`` would become a part of what ``IS DISTINCT FROM`` compares with.
    """

    depth: int
    opened: int
    repeating: int
    tables: int
    is_misread: bool = False


def nesting(text: str) -> Nesting:
    """Return how deep a text is nested.

    Parameters
    ----------
    text : str
        SQL of any kind; it need not be valid.

    Examples
    --------
    >>> nesting("id = 1")
    Nesting(depth=1, opened=1, repeating=0, tables=0, is_misread=False)
    >>> nesting("id IN (1, 2, 3) AND NOT abs(x) > 4")
    Nesting(depth=3, opened=3, repeating=1, tables=0, is_misread=False)
    >>> nesting("id" + "+1" * 1500 + " = 1").depth
    1501
    >>> nesting("id IN (" + "1, " * 100_000 + "1)").depth
    2
    """
    # Programs ask for other numbers each time. With a $ they may be part of a quotation mark.
    if len(text) > _LONGEST_KNOWN or "$" in text:
        return _measured(text)
    return _known(_NUMBERS.sub("1", text))


def _measured(text: str) -> Nesting:
    strings = ["plain"]
    if "\\" in text:
        strings += ["escape", "always"]
    dollars = [False, True] if "$" in text else [False]
    nested = [False, True] if text.count("/*") > 1 else [False]
    found = [_Measure(text, *how).found for how in product(strings, dollars, nested)]
    return Nesting(
        depth=max(one.depth for one in found),
        opened=max(one.opened for one in found),
        repeating=max(one.repeating for one in found),
        tables=max(one.tables for one in found),
        is_misread=any(one.is_misread for one in found),
    )


_known = lru_cache(maxsize=1024)(_measured)


def refuse_unsafe(text: str, what: str, *, where: str, error: type[InputError]) -> int:
    """Refuse what :func:`refuse_deep` does, and a text that DataFusion would misread.

    Parameters, return value and errors are those of :func:`refuse_deep`.

    Examples
    --------
    >>> from weir.errors import FilterError
    >>> refuse_unsafe("(a IS DISTINCT FROM b) AND c", "the filter", where="filter", error=FilterError)
    5
    >>> refuse_unsafe("a IS DISTINCT FROM b AND c", "the filter", where="filter", error=FilterError)
    Traceback (most recent call last):
    weir.errors.FilterError: the filter has AND or OR after IS DISTINCT FROM, which would be read as a part \
of its right side [filter]. Put it in parentheses: (a IS NOT DISTINCT FROM b) AND c
    """
    depth = refuse_deep(text, what, where=where, error=error)
    if nesting(text).is_misread:
        raise error(
            f"{what} has AND or OR after IS DISTINCT FROM, which would be read as a part of its right side",
            where=where,
            hint="Put it in parentheses: (a IS NOT DISTINCT FROM b) AND c",
        )
    return depth


def refuse_deep(text: str, what: str, *, where: str, error: type[InputError]) -> int:
    """Refuse a text that would be too much for the libraries; return how deep it is nested.

    Parameters
    ----------
    text : str
        The SQL.
    what : str
        What it is, for the message: "the filter".
    where : str
        The argument it was passed as.
    error : type
        The error to raise.

    Raises
    ------
    InputError
        Of the type asked for.

    Examples
    --------
    >>> from weir.errors import FilterError
    >>> refuse_deep("id" + "+1" * 1500 + " = 1", "the filter", where="filter", error=FilterError)
    Traceback (most recent call last):
    weir.errors.FilterError: the filter is nested 1,501 levels deep, and 200 are the most [filter]. Write \
values as a list, as in id IN (1, 2), and compute long sums or texts before
    """
    if len(text) > MAX_CHARACTERS:
        raise error(
            f"{what} is {len(text):,} characters long, and {MAX_CHARACTERS:,} are the most",
            where=where,
            hint="Ask in several parts; rows of many keys are read with table.get()",
        )
    found = nesting(text)
    if found.depth > MAX_DEPTH:
        raise error(
            f"{what} is nested {found.depth:,} levels deep, and {MAX_DEPTH} are the most",
            where=where,
            hint="Write values as a list, as in id IN (1, 2), and compute long sums or texts before",
        )
    if found.opened > MAX_OPEN:
        raise error(
            f"{what} has parentheses and signs {found.opened:,} levels deep, and {MAX_OPEN} are the most",
            where=where,
            hint="Leave out parentheses that change nothing",
        )
    if found.repeating > MAX_REPEATING:
        raise error(
            f"{what} has BETWEEN, IN, CASE or coalesce() {found.repeating} times within each other, and "
            f"{MAX_REPEATING} times are the most",
            where=where,
            hint="Each doubles the work: write it with AND and OR",
        )
    if found.tables > MAX_SUBQUERIES:
        raise error(
            f"{what} reads tables in {found.tables:,} places, and {MAX_SUBQUERIES} are the most",
            where=where,
            hint="Ask in several queries",
        )
    return found.depth


def on_a_deep_stack(depth: int, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Return what ``work`` returns, where the stack has room for so many levels.

    Libraries that plan in the thread of their caller would end the process in one whose stack is small.

    Parameters
    ----------
    depth : int
        What :func:`refuse_deep` has returned.
    work : callable
        What to do, with its arguments. It must not come back here.
    """
    if depth <= _SHALLOW:
        return work(*args, **kwargs)
    return _deep_stacks().submit(work, *args, **kwargs).result()


@cache
def _deep_stacks() -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor(_THREADS, "weir-sql")
    with _making:
        before = threading.stack_size(_STACK_BYTES)
        try:
            # Threads are made while work is waiting and none is idle: this makes all of them.
            barrier = threading.Barrier(_THREADS)
            started = [pool.submit(barrier.wait) for _ in range(_THREADS)]
        finally:
            threading.stack_size(before)
    for one in started:
        one.result()
    return pool


_making = threading.Lock()
# A forked process has none of its parent's threads.
os.register_at_fork(after_in_child=_deep_stacks.cache_clear)


class _Level:
    """What was counted between an opening and its end."""

    __slots__ = (
        *("after_operand", "betweens", "chained", "closing", "deepest", "in_from", "inner", "most"),
        *("opened", "operators", "prefix", "repeated", "repeating", "repeating_inner"),
        *("is_distinct", "words"),
    )

    def __init__(self, closing: str, opened: int) -> None:
        self.closing = closing
        # What a parser has open here, and the signs since the last operand that is followed by another.
        self.opened, self.prefix = opened, 0
        # Levels of what repeats its operand: in all, since the last AND or OR, and in parentheses since then.
        self.repeated = self.repeating = self.repeating_inner = 0
        # BETWEEN whose AND is to come.
        self.betweens = 0
        # Of the item so far: AND and OR; the most levels between two of them.
        self.chained = self.most = 0
        # Since the last AND or OR: operators, and the deepest of what was in parentheses.
        self.operators = self.inner = 0
        # Of the items before.
        self.deepest = 0
        self.after_operand = self.in_from = False
        # Words of IS [NOT] DISTINCT FROM just read, and whether that is in the item.
        self.words = 0
        self.is_distinct = False

    def follow_distinct(self, word: str) -> None:
        if word == "NOT" and self.words == 1:
            return
        is_next = self.words < len(_DISTINCT) and word == _DISTINCT[self.words]
        self.words = self.words + 1 if is_next else int(word == "IS")
        self.is_distinct |= self.words == len(_DISTINCT)

    def end_operand(self) -> None:
        self.most = max(self.most, self.operators + self.inner)
        self.repeated = max(self.repeated, self.repeating + self.repeating_inner)
        self.operators = self.inner = self.repeating = self.repeating_inner = 0
        self.after_operand = False

    def end_item(self) -> None:
        self.end_operand()
        self.deepest = max(self.deepest, self.chained // _CHAINED + self.most)
        self.chained = self.most = self.betweens = self.prefix = 0
        self.is_distinct = False


class _Measure:
    """Counts the levels of a text, for one way to read it."""

    def __init__(self, text: str, strings: str, dollars: bool, nested: bool) -> None:
        self._tables = 0
        self._opened = 0
        self._is_misread = False
        self._levels = [_Level("", 0)]
        for kind, token in _scan(text, _tokens(strings, dollars, nested), nested):
            if kind == "list":
                self._levels[-1].end_item()
            elif kind == "text":
                self._operand()
            elif kind == "operand":
                self._word(token.upper() if len(token) < 12 else token)
            else:
                self._sign(token)
            if self._levels[-1].operators > _ENOUGH or len(self._levels) > _ENOUGH:
                break
        while len(self._levels) > 1:
            self._close()
        whole = self._levels[0]
        whole.end_item()
        self.found = Nesting(
            whole.deepest, self._opened, whole.repeated, self._tables, is_misread=self._is_misread
        )

    def _operand(self) -> None:
        level = self._levels[-1]
        # Two adjacent words are a word operator and its operand, or a type and its text.
        if level.after_operand:
            self._operator(level, 1)
        level.after_operand = True

    def _operator(self, level: _Level, prefix: int) -> None:
        level.operators += 1
        level.prefix = 1 if level.after_operand and not prefix else level.prefix + 1
        level.after_operand = False
        self._opened = max(self._opened, level.opened + level.prefix)

    def _word(self, word: str) -> None:
        level = self._levels[-1]
        if word == "AND" and level.betweens:
            level.betweens -= 1
            self._operator(level, 0)
        elif word in ("AND", "OR"):
            self._is_misread |= level.is_distinct
            level.end_operand()
            level.chained += 1
            level.prefix = 1
        elif word in _SEPARATORS:
            level.end_item()
            self._tables += word in _TABLES
            level.in_from &= word in ("JOIN", "ON")
        elif word in _OPENING:
            self._open(word)
        elif word == level.closing:
            self._close()
        else:
            # No separator: there is IS DISTINCT FROM as well.
            level.in_from |= word == "FROM"
            level.follow_distinct(word)
            level.betweens += word == "BETWEEN"
            level.repeating += word in _REPEATING
            self._operand()

    def _sign(self, sign: str) -> None:
        level = self._levels[-1]
        if sign in _SEPARATORS:
            self._tables += level.in_from
            level.end_item()
        elif sign in _OPENING:
            self._open(sign)
        elif sign == level.closing:
            self._close()
        else:
            # What closes something else counts, and closes nothing.
            self._operator(level, 0)

    def _open(self, sign: str) -> None:
        level = self._levels[-1]
        if level.after_operand and sign == "[":
            level.operators += 1  # each index of a chain is another level
        level.repeating += sign == "CASE"
        opened = level.opened + level.prefix + 1
        self._opened = max(self._opened, opened)
        self._levels.append(_Level(_OPENING[sign], opened))

    def _close(self) -> None:
        closed = self._levels.pop()
        closed.end_item()
        level = self._levels[-1]
        level.inner = max(level.inner, closed.deepest + 1)
        level.repeating_inner = max(level.repeating_inner, closed.repeated)
        level.after_operand = True


def _scan(text: str, tokens: re.Pattern[str], nested: bool) -> Iterator[tuple[str | None, str]]:
    at = 0
    while at < len(text):
        if nested and text.startswith("/*", at):
            at = _end_of_comment(text, at)
            continue
        match = tokens.match(text, at)
        if match is None:
            at += 1
            continue
        at = match.end()
        kind = match.lastgroup
        if kind == "tag":
            kind = "text"
        if kind == "comment" or (kind is None and match[0].isspace()):
            continue
        yield kind, match[0] if kind != "list" else ""


def _end_of_comment(text: str, at: int) -> int:
    depth = 0
    for mark in re.compile(r"/\*|\*/").finditer(text, at):
        depth += 1 if mark[0] == "/*" else -1
        if not depth:
            return mark.end()
    return len(text)
