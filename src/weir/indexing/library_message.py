"""The Lance library's error messages, without the parts that only its authors can use."""

from __future__ import annotations

import re

__all__ = ["library_message"]

_SOURCE_PLACE = re.compile(r",?\s*(?<![^\s,])[^\s,]*\.rs:\d+(?::\d+)?")


def library_message(error: BaseException) -> str:
    """Return what the library says, without the places in its own source that it names.

    Examples
    --------
    >>> library_message(OSError("Not found: a.lance, /home/somebody/rust/lance-io/src/local.rs:12:9"))
    'Not found: a.lance'
    """
    return _SOURCE_PLACE.sub("", str(error)).strip()
