"""What runs the parts of queries in tests."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

__all__ = ["Pickling"]


class Pickling:
    """Runs parts as Spark does: they, and what they give, are sent as bytes."""

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        for task in tasks:
            yield pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(task)))))
