"""Looking words up in the transducers that Lance writes."""

from __future__ import annotations

import random
import string

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

from weir.format.fst import Fst


@pytest.fixture(scope="module")
def words() -> list[str]:
    generator = random.Random(1)
    letters = string.ascii_lowercase + string.digits + "\u00e9\u00df\u5317\u0436"
    made = {"".join(generator.choices(letters, k=generator.randint(1, 7))) for _ in range(8_000)}
    # Nodes of one letter, of a few, of more than 32, and long chains.
    return sorted(made | set(string.ascii_lowercase) | {"a" * 30, "a" * 31, "ab" * 15})


@pytest.fixture(scope="module")
def transducer(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Fst:
    place = tmp_path_factory.mktemp("words") / "t"
    dataset = lance.write_dataset(pa.table({"text": [" ".join(words)]}), place)
    dataset.create_scalar_index(
        "text",
        "INVERTED",
        base_tokenizer="whitespace",
        stem=False,
        remove_stop_words=False,
        ascii_folding=False,
    )
    (path,) = place.glob("_indices/*/part_0_tokens.lance")
    stored = LanceFileReader(str(path)).read_all().to_table().column("_token_fst_bytes")[0].as_py()
    return Fst(stored, where="some/object")


def test_every_word_has_a_number_of_its_own(transducer: Fst, words: list[str]) -> None:
    numbers = [transducer.get(word.encode()) for word in words]
    assert sorted(number for number in numbers if number is not None) == list(range(len(words)))


def test_other_words_have_none(transducer: Fst, words: list[str]) -> None:
    generator = random.Random(2)
    known = set(words)
    others = {word[:-1] for word in words} | {word + "q" for word in words} | {"", "\u5318", "a" * 29}
    others |= {"".join(generator.choices(string.printable, k=4)) for _ in range(2_000)}
    assert [word for word in others - known if transducer.get(word.encode()) is not None] == []


def test_what_is_no_transducer_is_refused() -> None:
    for data in (b"", b"\x02" + bytes(50), bytes(10)):
        with pytest.raises(ValueError, match="known version"):
            Fst(data, where="some/object")
