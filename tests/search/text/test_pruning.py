"""Telling which rows may be among the best: none of the best is ever left out, and most others are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pytest

from weir.search.text.bm25 import Statistics
from weir.search.text.match import AnyOf, Node, Words, score
from weir.search.text.pruning import best_candidates
from weir.search.text.task import Scores, TextCandidates
from weir.search.text.tokenizer import in_common

ROWS = 3_000
WORDS = ("rare", "common", "usual", "everywhere")
SHARES = (0.005, 0.05, 0.2, 0.9)
NO_SCORES: Scores = np.zeros(0, dtype=np.float32)

Lists = dict[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]]


class Some:
    """Some rows of a corpus."""

    tokenizer = None

    def __init__(self, corpus: Corpus, rows: npt.NDArray[np.int64]) -> None:
        self._corpus = corpus
        self._rows = rows
        self.lengths = corpus.lengths[rows]

    def __len__(self) -> int:
        return len(self._rows)

    def occurrences(self, word: str) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int32]]:
        rows, counts = self._corpus.lists[word]
        here, there = in_common(self._rows, rows)
        return here, counts[there]


class Corpus:
    """Rows that have words at random, some of which do not count."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.lengths = random.integers(1, 40, ROWS).astype(np.int32)
        self.live = random.random(ROWS) < 0.8
        self.lists: Lists = {}
        for word, share in zip(WORDS, SHARES, strict=True):
            rows = np.flatnonzero(random.random(ROWS) < share)
            self.lists[word] = (rows, random.integers(1, 4, len(rows)).astype(np.int32))
        having = {word: int(self.live[rows].sum()) for word, (rows, _) in self.lists.items()}
        self.statistics = {"text": Statistics(ROWS, int(self.lengths.sum()), having)}

    def scored(self, node: Node, rows: npt.NDArray[np.int64]) -> tuple[Scores, npt.NDArray[np.int64]]:
        """Return the scores of the rows that a query finds and that count, and which these are."""
        scores, found = score(node, {"text": Some(self, rows)}, self.statistics)  # type: ignore[dict-item]
        found = found & self.live[rows]
        return scores[found].astype(np.float32), rows[found]

    def best(
        self, node: Node, k: int, others: Scores = NO_SCORES
    ) -> tuple[Scores, npt.NDArray[np.int64], int]:
        """Return the scores of the best rows, which these are, and how many rows were scored at most."""
        most = 0

        def best(rows: npt.NDArray[np.int64]) -> TextCandidates:
            nonlocal most
            assert (np.diff(rows) > 0).all()
            most = max(most, len(rows))
            scores, found = self.scored(node, rows)
            order = np.lexsort((found, -scores))[:k]
            return TextCandidates(scores[order], found[order])

        known: Mapping[str, Lists] = {"text": self.lists}
        found = best_candidates(node, known, self.statistics, {"text": 1}, best, k, others)
        return found.score, found.rows, most


def any_of(*groups: tuple[str, ...], every: bool = False, boost: float = 1.0) -> Words:
    return Words("text", groups, every, boost)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "node",
    [
        any_of(("rare",), ("common",), ("usual",), ("everywhere",)),
        any_of(("rare",), ("common",), ("usual",), ("everywhere",), every=True),
        any_of(("rare", "usual"), ("everywhere", "common"), every=True),
        any_of(("everywhere",), ("everywhere", "rare"), ("usual", "common"), boost=0.25),
        any_of(("rare",), ("common",), ("usual",), ("everywhere",), boost=0.0),
        any_of((), ("rare", "common", "usual", "everywhere"), every=True),
        AnyOf((any_of(("rare", "common")), any_of(("usual", "everywhere")))),
    ],
    ids=str,
)
@pytest.mark.parametrize("k", [1, 10, 500])
def test_what_is_left_out_is_not_among_the_best(seed: int, node: Node, k: int) -> None:
    corpus = Corpus(seed)
    scores, rows = corpus.scored(node, np.arange(ROWS))
    order = np.lexsort((rows, -scores))[:k]
    best, which, _ = corpus.best(node, k)
    assert which.tolist() == rows[order].tolist()
    assert best.tolist() == scores[order].tolist()


def test_rows_that_have_only_common_words_are_left_out() -> None:
    corpus = Corpus(0)
    node = any_of(("rare",), ("common",), ("usual",), ("everywhere",))
    assert corpus.best(node, 3)[2] < ROWS / 4
    # What is known of rows elsewhere leaves out all of them.
    assert corpus.best(node, 3, np.full(3, 100, dtype=np.float32))[2] == 0
