"""Posting lists of full-text indexes: they tell what the texts do, and find what Lance finds."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from tests.search.text.test_search import QUERIES, WORDS, Lives, index, rows

import weir
from weir.base.table import BaseTable
from weir.engine.context import default_context
from weir.indexing import build_plan
from weir.indexing.kinds import IndexKind
from weir.search.text import search as text_search_module
from weir.search.text import segment as text_segment_module
from weir.search.text.generation_terms import IndexedTexts
from weir.search.text.index import text_index
from weir.search.text.levels import JoinedTexts, LevelsPart
from weir.search.text.postings_task import PostingsTextTask
from weir.search.text.search import TextSearchPlan
from weir.search.text.tokenizer import TextRows
from weir.search.text.unindexed_task import PartsTextTask
from weir.storage.open import open_store


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Lives:
    """Base rows with an index and generations with indexes of their own, rows of the log and deletes."""
    lives = Lives(tmp_path_factory.mktemp("postings") / "t")
    generator = np.random.default_rng(8)
    with pytest.MonkeyPatch.context() as patch, lives.table.writer(flush_on_close=False) as writer:
        least = {**build_plan._MIN_ROWS, IndexKind.INVERTED: 50}
        patch.setattr(build_plan, "_MIN_ROWS", least)
        writer.upsert(lives.remember(rows(generator, range(900))))
        writer.flush()
        lives.table.maintenance.merge()
        index(lives.table)
        for ids, flushed in ((range(800, 1000), True), (range(600, 850), True), (range(990, 1010), False)):
            writer.upsert(lives.remember(rows(generator, ids, 25)))
            if flushed:
                writer.flush()
        writer.delete(list(range(60)))
        for key in range(60):
            del lives.model[key,]
    # One that has seen the rows in the log goes on reading them there.
    lives.table = weir.open(lives.table.uri, fsync=False)
    return lives


def planned(lives: Lives, query: weir.MatchQuery | str, k: int = 5) -> TextSearchPlan:
    plan = lives.table.search_text(query, k).plan()
    assert isinstance(plan, TextSearchPlan)
    return plan


@pytest.mark.one_in(3)
@pytest.mark.parametrize("at", range(len(QUERIES)))
def test_scores_are_those_of_the_merged_view(lives: Lives, at: int) -> None:
    query, k = QUERIES[at]
    lives.check(query, k)
    lives.check(query, k, "number = 1")
    lives.check(query, 2000)


def test_words_of_a_generation_are_read_from_its_index(lives: Lives) -> None:
    newer = planned(lives, "w1").newer
    assert isinstance(newer, PartsTextTask)
    (tokenizer,) = newer.question.tokenizers.values()
    kinds = []
    assert all(isinstance(part, LevelsPart) for part in newer.parts)
    levels = [level for part in newer.parts if isinstance(part, LevelsPart) for level in part.levels]
    # All generations as one, and every level by itself.
    for part in [*newer.parts, *(LevelsPart((level,)) for level in levels)]:
        found = part.texts("text", tokenizer)
        kinds.append(type(found))
        texts = part.take(np.arange(len(part.live)), ["text"]).column("text").combine_chunks()
        expected = TextRows(texts, tokenizer)
        np.testing.assert_array_equal(found.lengths, expected.lengths)
        assert set(found.vocabulary) == set(expected.vocabulary)
        assert found.take(np.array([3, 1])).to_pylist() == texts.take(pa.array([3, 1])).to_pylist()
        for word in [*WORDS, "absent"]:
            for mine, theirs in zip(found.occurrences(word), expected.occurrences(word), strict=True):
                np.testing.assert_array_equal(mine, theirs)
    assert kinds.count(IndexedTexts) == 2
    assert kinds.count(JoinedTexts) == 1


@pytest.mark.parametrize("query", ["w0", "w3 w17 w40", "w5 w1", "absent w9", "absent"])
def test_lance_finds_the_same_rows(lives: Lives, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_postings = planned(lives, query, 7)
    assert isinstance(by_postings.indexed, PostingsTextTask)
    monkeypatch.setattr(text_search_module, "MOST_POSTINGS", -1)
    by_lance = planned(lives, query, 7)
    assert not isinstance(by_lance.indexed, PostingsTextTask)
    assert by_postings.run().equals(by_lance.run())


def test_a_fuzzy_word_that_matches_none_finds_none(lives: Lives) -> None:
    assert planned(lives, weir.MatchQuery("quite-other", fuzziness=1)).run().num_rows == 0
    lives.check(weir.BooleanQuery(should=[weir.MatchQuery("zzzzzz", fuzziness=1), "w4"]), 5)


def test_an_index_of_several_segments_that_knows_deleted_rows(tmp_path: Path) -> None:
    lives = Lives(tmp_path / "t")
    generator = np.random.default_rng(9)
    with lives.table.writer() as writer:
        for ids in (range(300), range(250, 500)):
            writer.upsert(lives.remember(rows(generator, ids)))
            writer.flush()
            lives.table.maintenance.merge()
            if ids.start == 0:
                index(lives.table)
        lives.table.maintenance.catch_up_indexes()
        writer.upsert(lives.remember(rows(generator, range(100, 150))))
        for query, k in QUERIES:
            lives.check(query, k)
    base = BaseTable.open(open_store(lives.table.uri))
    found = text_index(base, "text")
    assert len(found.identity) > 1
    assert not found.is_current
    dataset = lance.dataset(lives.table.uri).to_table(columns=["text"], with_row_id=True)
    for word in ("w0", "w20"):
        occurs = found.occurrences(word)
        assert occurs is not None
        expected = {
            row_id: (text.split().count(word), len(text.split()))
            for row_id, text in zip(dataset["_rowid"].to_pylist(), dataset["text"].to_pylist(), strict=True)
            if word in text.split()
        }
        pairs = zip(occurs.counts.tolist(), occurs.lengths.tolist(), strict=True)
        assert dict(zip(occurs.row_ids.tolist(), pairs, strict=True)) == expected


def test_files_in_an_unknown_way_are_left_to_lance(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = planned(lives, "w2 w8").run()
    default_context().cache.clear()
    monkeypatch.setattr(text_segment_module, "TAIL_CODEC", "another")
    try:
        reader = weir.open(lives.table.uri)
        plan = reader.search_text("w2 w8", 5).plan()
        assert isinstance(plan, TextSearchPlan)
        assert not isinstance(plan.indexed, PostingsTextTask)
        assert plan.run().equals(expected)
        for query, k in QUERIES:
            lives.check(query, k)
    finally:
        default_context().cache.clear()


def test_a_generation_whose_posting_lists_are_damaged_is_read_from_its_texts(
    lives: Lives, caplog: pytest.LogCaptureFixture
) -> None:
    expected = planned(lives, "w2 w8").run()
    files = list(Path(lives.table.uri).glob("_mem_wal/*/*/_indices/*/*_invert.lance"))
    whole = {path: path.read_bytes() for path in files}
    assert len(files) == 2
    try:
        for path, data in whole.items():
            path.write_bytes(data[:100] + bytes(200) + data[300:])
        default_context().cache.clear()
        reader = weir.open(lives.table.uri)
        assert reader.search_text("w2 w8", 5).to_table().equals(expected)
        # What was read of the texts is kept: it is said once.
        assert reader.search_text("w2 w8", 5).to_table().equals(expected)
    finally:
        for path, data in whole.items():
            path.write_bytes(data)
        default_context().cache.clear()
    fields = [getattr(record, "event_fields", {}) for record in caplog.records]
    said = [one for one in fields if one.get("event") == "generation.text_index_damaged"]
    numbers = {
        one.path: (str(view.shard_id), one.generation)
        for view in reader.internals.reader.take_newest().shards
        for one in view.manifest.flushed_generations
    }
    assert {(one["where"], one["shard"], one["generation"]) for one in said} == {
        (str(path.parent), *numbers[path.parents[2].name]) for path in whole
    }
    assert len(said) == len(whole)
