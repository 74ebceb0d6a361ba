"""Weir's errors on Spark's workers, found again in what Spark says of them.

Spark passes on the text of an error that a data source raises, inside an error of its own.
"""

from __future__ import annotations

import re

from weir import errors
from weir.errors import WeirError

__all__ = ["worker_error"]

# The line that ends a traceback of Python.
_RAISED = re.compile(r"^weir\.errors\.(\w+): (.+)$", re.MULTILINE)


def worker_error(said: str) -> WeirError | None:
    r"""Return the last error of Weir's in the text of one of Spark's; None if there is none.

    Examples
    --------
    >>> str(worker_error("An exception was thrown:\nTraceback:\nweir.errors.KeyValueError: a null [id]"))
    'a null [id]'
    """
    for name, message in reversed(_RAISED.findall(said)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, WeirError):
            return kind(message)
    return None
