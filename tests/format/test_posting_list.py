"""Decoding the posting lists that Lance writes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

from weir.errors import CorruptionError
from weir.format.fst import Fst
from weir.format.posting_list import decode

# How many texts have each word: none left over, some left over, and nothing but what is left over.
SHARES = {"every": 1, "half": 2, "few": 40, "rare": 1_500}
ROWS = 2_560


@pytest.fixture(scope="module")
def texts() -> list[str]:
    generator = np.random.default_rng(5)
    made = []
    for row in range(ROWS):
        words = [word for word, share in SHARES.items() if row % share == 0]
        # Steps and counts of all widths.
        words += ["wide"] * int(2 ** generator.integers(0, 12)) if generator.random() < 0.05 else []
        words += ["often"] * int(generator.integers(1, 5)) if generator.random() < 0.3 else []
        made.append(" ".join(words))
    return made


@pytest.fixture(scope="module")
def place(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("postings") / "t"
    dataset = lance.write_dataset(pa.table({"text": texts}), place)
    dataset.create_scalar_index("text", "INVERTED", stem=False, remove_stop_words=False)
    (index,) = place.glob("_indices/*")
    return index


def lists(place: Path) -> pa.Table:
    reader = LanceFileReader(str(place / "part_0_invert.lance"), columns=["_posting", "_length"])
    return reader.read_all().to_table()


def test_every_list_says_which_texts_have_the_word_and_how_often(place: Path, texts: list[str]) -> None:
    read = lists(place)
    found = decode(read["_posting"].combine_chunks(), read["_length"].to_numpy(), where="here")
    stored = LanceFileReader(str(place / "part_0_tokens.lance")).read_all().to_table()
    words = Fst(stored["_token_fst_bytes"][0].as_py(), where="here")
    each = [Counter(text.split()) for text in texts]
    for word in (*SHARES, "wide", "often"):
        number = words.get(word.encode())
        assert number is not None
        mine = slice(*found.starts[number : number + 2].tolist())
        expected = {row: counts[word] for row, counts in enumerate(each) if word in counts}
        assert dict(zip(found.documents[mine].tolist(), found.counts[mine].tolist(), strict=True)) == expected
        alone = decode(
            read["_posting"].combine_chunks().slice(number, 1),
            read["_length"].to_numpy()[number : number + 1],
            where="here",
        )
        np.testing.assert_array_equal(alone.documents, found.documents[mine])
        np.testing.assert_array_equal(alone.counts, found.counts[mine])


def test_no_lists_are_no_rows() -> None:
    none = decode(pa.array([], pa.list_(pa.large_binary())), np.zeros(0, dtype=np.uint32), where="here")
    assert (len(none.documents), none.starts.tolist()) == (0, [0])


@pytest.mark.parametrize("keep", [0, 3, 7, 9, 40])
@pytest.mark.parametrize("word", ["whole", "last"])
def test_what_is_cut_short_is_corruption(place: Path, keep: int, word: str) -> None:
    read = lists(place).to_pylist()
    fits = (lambda rows: rows >= 128) if word == "whole" else (lambda rows: rows in range(30, 128))
    row = next(one for one in read if fits(one["_length"]))
    blocks = [row["_posting"][0][:keep], *row["_posting"][1:]]
    with pytest.raises(CorruptionError) as error:
        decode(
            pa.array([blocks], pa.list_(pa.large_binary())),
            np.array([row["_length"]], dtype=np.uint32),
            where="here",
        )
    assert error.value.where == "here"


def test_other_numbers_of_rows_are_corruption(place: Path) -> None:
    read = lists(place)
    blocks, rows = read["_posting"].combine_chunks(), read["_length"].to_numpy().astype(np.int64)
    for change in (-1, 1, 128):
        with pytest.raises(CorruptionError):
            decode(blocks, (rows + change).astype(np.uint32), where="here")
