"""Text search over base table, generations and log, with scores of the merged view."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any
from uuid import UUID

import lance
import numpy as np
import pyarrow as pa
import pytest
from tests.search.search_model import check_ranking, text_scores

import weir
from weir.search.text import index_task as text_index_task
from weir.search.text.query import TextQuery
from weir.search.text.search import TextSearchPlan
from weir.search.text.tokenizer import Occurring, TextRows, Tokenizer, occurrences

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("text", pa.string()),
        ("lines", pa.list_(pa.string())),
        ("number", pa.int32()),
    ]
)
WORDS = [f"w{number}" for number in range(60)]


def rows(generator: np.random.Generator, ids: Any, longest: int = 12) -> list[dict[str, Any]]:
    chances = 1 / np.arange(1, len(WORDS) + 1)
    chances /= chances.sum()
    texts = {key: generator.choice(WORDS, generator.integers(0, longest), p=chances) for key in ids}
    return [
        {"id": int(key), "text": " ".join(words), "lines": lines(words), "number": int(key) % 3}
        for key, words in texts.items()
    ]


def lines(words: Any) -> list[str | None] | None:
    """Return words as a list of texts, which is searched as one text is."""
    at = len(words) // 2
    return [" ".join(words[:at]), None, " ".join(words[at:]), ""] if len(words) else None


def index(table: weir.Table, column: str = "text", **options: Any) -> None:
    settings = {"with_position": True, "stem": False, "remove_stop_words": False, **options}
    lance.dataset(table.uri).create_scalar_index(
        column, "INVERTED", replace="name" not in options, **settings
    )


class Lives:
    """A table, and the dict that it equals."""

    def __init__(self, place: Path) -> None:
        self.table = weir.create(place, SCHEMA, primary_key="id", fsync=False)
        self.model: dict[Any, dict[str, Any]] = {}

    def remember(self, written: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.model |= {(row["id"],): row for row in written}
        return written

    def check(
        self,
        query: TextQuery | str,
        k: int,
        filter: str | None = None,
        column: str = "text",
        bm25: tuple[float, float] = (1.2, 0.75),
    ) -> None:
        asked = weir.MatchQuery(query) if isinstance(query, str) else query
        options: dict[str, Any] = {"filter": filter, "column": column, "bm25": {column: bm25}}
        found = self.table.search_text(asked, k, columns=["id", "number"], **options).to_table()
        expected = text_scores(self.model, asked, bm25=bm25)
        if filter is not None:
            expected = {key: score for key, score in expected.items() if self.model[key]["number"] == 1}
        check_ranking(found, ["id"], "_score", expected, k, descending=True)


QUERIES: list[tuple[TextQuery | str, int]] = [
    ("w0", 3),
    ("w9", 5),
    ("w3 w17 w40", 3),
    (weir.MatchQuery("w2 w8", operator="and", boost=2.0), 4),
    (weir.PhraseQuery("w1 w0"), 4),
    (weir.PhraseQuery("w5 w0", slop=2), 4),
    (weir.MatchQuery("x12", fuzziness=1), 4),
    (weir.BooleanQuery(must=["w4"], should=["w0 w7"], must_not=["w1"]), 4),
    (weir.BoostQuery("w3", "w0", 0.7), 4),
]


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Lives:
    """Base rows with an index, others merged since, generations, rows of the log and deletes."""
    lives = Lives(tmp_path_factory.mktemp("text") / "t")
    generator = np.random.default_rng(4)
    with lives.table.writer() as writer:
        writer.upsert(lives.remember(rows(generator, range(700))))
        writer.flush()
        lives.table.maintenance.merge()
        index(lives.table)
        index(lives.table, "lines")
        # Longer texts, so that statistics shift and Lance's own scores are further off.
        for ids, flushed in ((range(600, 800), True), (range(500, 650), True), (range(640, 820), False)):
            writer.upsert(lives.remember(rows(generator, ids, 25)))
            if flushed:
                writer.flush()
        writer.delete(list(range(90)))
        for key in range(90):
            del lives.model[key,]
    return lives


@pytest.mark.one_in(3)
@pytest.mark.parametrize("at", range(len(QUERIES)))
def test_scores_are_those_of_the_merged_view(lives: Lives, at: int) -> None:
    query, k = QUERIES[at]
    lives.check(query, k)
    lives.check(query, k, "number = 1")
    lives.check(query, 1000)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("at", range(len(QUERIES)))
def test_lists_of_texts_are_searched_as_one_text_is(lives: Lives, at: int) -> None:
    query, k = QUERIES[at]
    lives.check(query, k, column="lines")
    lives.check(query, k, "number = 1", column="lines")


def test_the_only_column_with_an_index_is_searched_though_it_holds_lists(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("name", pa.string(), nullable=False), ("tags", pa.list_(pa.string()))])
    table = weir.create(tmp_path, schema, primary_key="name", fsync=False)
    table.indexes.create("tags", "INVERTED")
    with table.writer() as writer:
        writer.upsert([{"name": "a", "tags": ["red", "blue"]}, {"name": "red", "tags": ["blue"]}])
    assert table.search_text("red", columns=["name"]).to_table()["name"].to_pylist() == ["a"]
    table.indexes.create("name", "INVERTED")
    # Of several that have one it is the only text.
    assert table.search_text("red", columns=["name"]).to_table()["name"].to_pylist() == ["red"]


@pytest.mark.covering
@pytest.mark.parametrize("at", range(len(QUERIES)))
@pytest.mark.parametrize("bm25", [(0.0, 0.3), (3.0, 1.0)], ids=str)
def test_texts_are_scored_by_the_constants_that_are_asked_for(
    lives: Lives, at: int, bm25: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_index_task, "_SPARE_ROWS", 0)
    query, k = QUERIES[at]
    lives.check(query, k, bm25=bm25)
    lives.check(query, k, "number = 1", bm25=bm25)
    lives.check(query, k, column="lines", bm25=bm25)


@pytest.mark.parametrize(
    "bm25", [{"text": (1.0,)}, {"text": (-1.0, 0.5)}, {"text": (1.0, 1.5)}, {"text": "x"}]
)
def test_constants_that_cannot_be_are_refused(lives: Lives, bm25: Any) -> None:
    with pytest.raises(weir.errors.QueryError, match="k1"):
        lives.table.search_text("w1", column="text", bm25=bm25).to_table()


def test_an_index_that_takes_lists_as_one_word_each_is_refused(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    table.upsert([{"id": 1, "text": "a", "lines": ["red fox", "sky"], "number": 1}])
    table.maintenance.merge()
    lance.dataset(table.uri).create_scalar_index("lines", "INVERTED", base_tokenizer="raw")
    with pytest.raises(weir.errors.QueryError, match="line ends"):
        table.search_text("sky", column="lines").to_table()


def test_candidates_are_fetched_until_no_other_can_be_better(
    lives: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With hardly any spare candidates, what Lance ranks first is not always what is best.
    monkeypatch.setattr(text_index_task, "_SPARE_ROWS", 0)
    for word in range(0, 40, 7):
        lives.check(f"w{word} w{word + 7} w2", 2)


def test_rows_that_are_dead_do_not_use_up_the_candidates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_index_task, "_MOST_CANDIDATES", 8)
    lives = Lives(tmp_path / "t")
    with lives.table.writer() as writer:
        texts = ["w1 w2"] * 90 + ["w1 w2 w3 w4 w5"] * 10 + ["w6"] * 200
        written = [{"id": at, "text": text, "lines": None, "number": 1} for at, text in enumerate(texts)]
        writer.upsert(lives.remember(written))
        writer.flush()
        lives.table.maintenance.merge()
        index(lives.table)
        writer.delete(list(range(90)))
        lives.model = {key: row for key, row in lives.model.items() if key[0] >= 90}
        # With nothing newer that has the words, and with newer rows that are worse.
        for longest in (0, 3):
            newer = [{**written[0], "id": 500 + at, "text": "w1 w2" + " w9" * 20} for at in range(longest)]
            writer.upsert(lives.remember(newer) or lives.remember([written[250]]))
            lives.check(weir.PhraseQuery("w1 w2"), 3)
            lives.check("w1 w2", 3, filter="number = 1")


def test_a_column_that_takes_the_name_of_another_has_its_own_words(tmp_path: Path) -> None:
    schema = pa.schema([SCHEMA.field("id"), ("red", pa.string()), ("blue", pa.string())])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    for column in ("red", "blue"):
        table.indexes.create(column, "INVERTED")
    with table.writer() as writer:
        writer.upsert([{"id": 1, "red": "rose", "blue": "sky"}])
    table.maintenance.merge()
    assert table.search_text("rose", column="red").to_table().num_rows == 1
    # An index goes with its column, whatever that is called.
    for old, new in (("red", "other"), ("blue", "red"), ("other", "blue")):
        renamed: Any = {"path": old, "name": new}
        lance.dataset(table.uri).alter_columns(renamed)
    assert table.search_text("rose", column="red").to_table().num_rows == 0
    for word, column in (("rose", "blue"), ("sky", "red")):
        assert table.search_text(word, column=column).to_table()["id"].to_pylist() == [1]


def test_lance_is_not_asked_where_it_could_use_another_index_of_the_column(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "text": "the running foxes", "number": 1}])
    table.maintenance.merge()
    # Lance takes the first it has, and lists them by name.
    index(table, name="late")
    index(table, name="early", stem=True)
    assert table.search_text("fox", column="text").to_table()["id"].to_pylist() == [1]
    for query, filter in (("fox", "number = 1"), (weir.PhraseQuery("fox running"), None)):
        with pytest.raises(weir.errors.QueryError, match="'early' and 'late'"):
            table.search_text(query, column="text", filter=filter).to_table()
    table.indexes.drop("late")
    assert table.search_text("fox", column="text", filter="number = 1").to_table()["id"].to_pylist() == [1]


@pytest.mark.parametrize("by_lance", [False, True])
def test_stop_words_are_those_of_the_index(tmp_path: Path, by_lance: bool) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    options: dict[str, Any] = {"custom_stop_words": ["fox"], "remove_stop_words": True, "stem": False}
    if by_lance:
        index(table, **options)
    else:
        table.indexes.create("text", "INVERTED", **options)

    def check() -> None:
        # Of its language, if it had no others, "the" would be one.
        found = weir.open(table.uri).search_text("the fox", 20, column="text").to_table()
        assert sorted(found["id"].to_pylist()) == list(range(count))
        assert len(set(found["_score"].to_pylist())) == 1

    count = 0
    with table.writer(flush_on_close=False) as writer:
        for _ in range(3):
            writer.upsert([{"id": count + at, "text": "the red fox", "number": 1} for at in range(5)])
            count += 5
            check()
            writer.flush()
            check()
            table.maintenance.merge()
            check()
            table.maintenance.catch_up_indexes()
            check()


def test_a_phrase_with_slop_is_found_where_its_words_are_repeated(tmp_path: Path) -> None:
    lives = Lives(tmp_path / "t")
    texts = ["w1 w2 w1 w2", "w1 w1 w9 w2", "w1 w2 w2 w1 w9 w2", "w2 w1", "w1 w9 w9 w9 w2"]
    written = [{"id": at, "text": text, "lines": None, "number": 1} for at, text in enumerate(texts)]
    with lives.table.writer() as writer:
        writer.upsert(lives.remember(written))
    lives.table.maintenance.merge()
    index(lives.table)
    for slop in (0, 1, 2, 3):
        for words in ("w1 w2", "w1 w2 w1 w2", "w1 w1 w2"):
            phrase = weir.PhraseQuery(words, slop=slop)
            lives.check(phrase, 10)
            lives.check(weir.BooleanQuery(should=["w2"], must_not=[phrase]), 10)


def test_a_fuzzy_word_that_the_library_would_part_is_refused(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "text": "an e-mail", "number": 1}])
    table.maintenance.merge()
    index(table, base_tokenizer="whitespace")
    assert table.search_text(weir.MatchQuery("e-mail"), column="text").to_table().num_rows == 1
    with pytest.raises(weir.errors.QueryError, match="'e-mail' has signs"):
        table.search_text(weir.MatchQuery("e-mail", fuzziness=2), column="text").to_table()


def test_tasks_can_be_run_elsewhere(lives: Lives) -> None:
    plan = lives.table.search_text("w3 w17", 7).plan()
    assert isinstance(plan, TextSearchPlan)
    indexed, newer = (pickle.loads(pickle.dumps(task)) for task in plan.tasks)
    scored = newer.candidates()
    best = indexed.best(scored.score)
    assert plan.merge([best, scored]).equals(plan.run())


def test_no_text_is_left_where_the_only_ones_were_replaced(tmp_path: Path) -> None:
    table = weir.create(tmp_path, SCHEMA, primary_key="id", fsync=False)
    index(table)
    blank = {"id": 1, "text": None, "lines": None, "number": 1}
    with table.writer() as writer:
        for row in ({**blank, "text": "w1 w1"}, blank):
            writer.upsert([row])
            writer.flush()
    assert table.search_text("w1", k=3, column="text").to_pylist() == []


def test_the_order_is_the_same_every_time(lives: Lives) -> None:
    found = [weir.open(lives.table.uri).search_text("w0 w1", 50).to_table() for _ in range(3)]
    assert found[0].equals(found[1])
    assert found[0].equals(found[2])


def test_once_all_is_merged_and_indexed_it_is_what_lance_finds(tmp_path: Path) -> None:
    lives = Lives(tmp_path / "t")
    generator = np.random.default_rng(6)
    with lives.table.writer() as writer:
        writer.upsert(lives.remember(rows(generator, range(300))))
        writer.flush()
        lives.table.maintenance.merge()
        index(lives.table)
        writer.upsert(lives.remember(rows(generator, range(200, 400))))
        before = {
            word: lives.table.search_text(word, 1000).to_table() for word in ("w0", "w5 w30", "w1 w2 w3")
        }
        writer.flush()
    lives.table.maintenance.merge()
    lance.dataset(lives.table.uri).optimize.compact_files()
    index(lives.table)
    for words, earlier in before.items():
        query = {"query": words, "columns": ["text"]}
        lances = lance.dataset(lives.table.uri).to_table(full_text_query=query, columns=["id", "_score"])
        scores = dict(zip(lances["id"].to_pylist(), lances["_score"].to_pylist(), strict=True))
        for ours in (earlier, lives.table.search_text(words, 1000).to_table()):
            mine = dict(zip(ours["id"].to_pylist(), ours["_score"].to_pylist(), strict=True))
            assert mine.keys() == scores.keys()
            assert mine == pytest.approx(scores, rel=1e-4)


def test_the_tokenizer_is_that_of_the_index(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    index(table, stem=True, remove_stop_words=True, language="English")
    with table.writer() as writer:
        writer.upsert([{"id": 1, "text": "The departures were delayed"}, {"id": 2, "text": "Arrivals"}])
        assert table.search_text("departure").to_table()["id"].to_pylist() == [1]
        assert table.search_text("the arrival").to_table()["id"].to_pylist() == [2]
    index(table, base_tokenizer="ngram", min_ngram_length=3, max_ngram_length=3)
    assert table.search_text("lay").to_table()["id"].to_pylist() == [1]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stem": False, "remove_stop_words": False},
        {"base_tokenizer": "whitespace", "lower_case": False},
        {"base_tokenizer": "raw"},
        {"base_tokenizer": "ngram", "min_ngram_length": 2, "max_ngram_length": 4},
        {"max_token_length": 5},
        {"custom_stop_words": ["dog"]},
    ],
)
def test_many_texts_have_the_words_of_each(options: dict[str, Any]) -> None:
    texts = [
        "The quick brown fox",
        None,
        "",
        "dogs, dog; DOGS",
        "qzvxqjkzv",
        "naïve café\n\nfox",
        "a" * 60,
        "?",
    ]
    tokenizer = Tokenizer.of_index({"max_token_length": 40, **options})
    for some in (texts, texts[:4], texts[5:], texts[:1], []):
        each = tokenizer.words_of_each(pa.array(some, pa.string()))
        assert each == [tokenizer.words(text) if text else [] for text in some]


def test_rows_of_several_parts_are_numbered_one_after_the_other() -> None:
    tokenizer = Tokenizer.of_index({"max_token_length": 40, "stem": False, "remove_stop_words": False})
    parts = [TextRows(pa.array(texts), tokenizer) for texts in (["a b", "c"], [], ["b b", "", "d a"])]
    found, counts = occurrences(parts, "b")
    assert (found.tolist(), counts.tolist()) == ([0, 2], [1, 2])
    some = Occurring(parts, np.array([0, 2, 4]), {word: occurrences(parts, word) for word in "ab"})
    assert some.lengths.tolist() == [2, 2, 2]
    assert [array.tolist() for array in some.occurrences("a")] == [[0, 2], [1, 1]]
    assert some.take(np.array([1, 2])).to_pylist() == ["b b", "d a"]


def test_equally_good_rows_come_by_their_uuids(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.uuid(), nullable=False), ("text", pa.string())])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    ids = [UUID(int=number) for number in (7, 1, 4)]
    with table.writer() as writer:
        writer.upsert([{"id": one, "text": "heron lake"} for one in ids])
    table.indexes.create("text", "FTS")
    found = table.search_text("heron", column="text", k=3).to_table().column("id").to_pylist()
    assert found == sorted(ids)
