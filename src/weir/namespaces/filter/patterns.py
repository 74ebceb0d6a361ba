"""Text patterns as DataFusion regular expressions: globs, and words in sequence."""

from __future__ import annotations

import re

from weir.errors import InputError

__all__ = ["glob_pattern", "token_pattern", "tokens"]

MOST_WORDS = 256
"""Most words of one comparison: each is a separate pattern."""
_WORD = re.compile(r"[^\W_]+")
_EDGE = r"[^\p{L}\p{N}]"
_SPECIAL = frozenset(r"\.+*?()|[]{}^$#&-~")


def _escaped(text: str) -> str:
    return "".join(f"\\{one}" if one in _SPECIAL else one for one in text)


def glob_pattern(glob: str) -> str:
    r"""Return a glob as a regular expression: ``*``, ``?``, ``[abc]`` and ``[!abc]``.

    Raises
    ------
    InputError
        If it ends inside a set.

    Examples
    --------
    >>> glob_pattern("a*.t?t"), glob_pattern("[!x-z]b")
    ('^a.*\\.t.t$', '^[^x-z]b$')
    """
    pattern: list[str] = []
    at = 0
    while at < len(glob):
        one = glob[at]
        at += 1
        if one == "*":
            if pattern[-1:] != [".*"]:
                pattern.append(".*")
        elif one == "?":
            pattern.append(".")
        elif one == "[":
            end = glob.find("]", at + 1 + (glob[at : at + 1] in ("!", "^")))
            if end < 0:
                raise InputError(f"the glob {glob!r:.80} has a set of characters without an end")
            inside = glob[at:end]
            negated = inside[:1] in ("!", "^")
            members = "".join(
                f"\\{member}" if member in r"\[]^&~" else member for member in inside[1 if negated else 0 :]
            )
            pattern.append(f"[{'^' if negated else ''}{members}]")
            at = end + 1
        else:
            if one == "\\" and at < len(glob):
                one, at = glob[at], at + 1
            pattern.append(_escaped(one))
    return f"^{''.join(pattern)}$"


def tokens(value: object) -> list[str]:
    """Return the words of a text, or of several.

    Raises
    ------
    InputError
        If it is neither, or has more words than a filter looks for.

    Examples
    --------
    >>> tokens("Walrus-tusk, 2nd"), tokens(("sea", "lion"))
    (['Walrus', 'tusk', '2nd'], ['sea', 'lion'])
    """
    parts = value if isinstance(value, tuple) else (value,)
    found: list[str] = []
    for part in parts:
        if not isinstance(part, str):
            raise InputError("tokens are a text, or a list of texts")
        found.extend(_WORD.findall(part))
    if len(found) > MOST_WORDS:
        raise InputError(f"a filter looks for at most {MOST_WORDS:,} words at once")
    return found


def token_pattern(words: list[str], *, prefix: bool) -> str:
    """Return what finds words one after the other, whatever their capitals.

    Parameters
    ----------
    words : list of str
        The words.
    prefix : bool
        Whether the last one may be the beginning of a word.
    """
    sequence = f"{_EDGE}+".join(map(_escaped, words))
    return f"(?si)(^|{_EDGE}){sequence}" + ("" if prefix else f"({_EDGE}|$)")
