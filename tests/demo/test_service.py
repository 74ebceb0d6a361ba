"""The demo of the service: real texts and vectors, and answers that are all right through kills."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weir.demo.documentation import documentation_strings, vectors_of, words_of
from weir.demo.service import run_service_demo


@pytest.mark.long
def test_texts_are_real_and_each_is_there_once() -> None:
    texts = documentation_strings(50)
    assert len({one.text for one in texts}) == len(texts) == 50
    assert all(60 <= len(one.text) <= 4_000 and one.package and one.name for one in texts)
    assert documentation_strings(50) == texts


def test_texts_of_the_same_words_are_near_each_other() -> None:
    about = [
        "the walrus swims in the cold sea",
        "parse the tokens of a grammar",
        "draw a chart with two axes",
    ]
    texts = [f"{about[n % 3]} number {'abcdefghij'[n // 3] * 3}" for n in range(30)]
    vectors = vectors_of(texts, 4)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    nearest = np.argsort(-(vectors @ vectors.T), axis=1)[:, :10]
    assert all({*row % 3} == {n % 3} for n, row in enumerate(nearest))
    assert words_of("A walrus, and TWO seals!") == ["walrus", "and", "two", "seals"]


@pytest.mark.long
def test_every_answer_is_right_through_kills(tmp_path: Path) -> None:
    assert run_service_demo(tmp_path / "root", texts=400, kills=2) == []
