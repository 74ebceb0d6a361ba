"""Words, places and refusals of the language."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest

from tests.events.random_queries import random_query
from weir.errors import InputError, QueryError
from weir.events.language import tree
from weir.events.language.parser import keywords, parse


def query(text: str) -> tree.Query:
    parsed = parse(text)
    assert isinstance(parsed, tree.Query)
    return parsed


@pytest.mark.parametrize("word", [*(one.lower() for one in keywords()), "day", "true"])
def test_no_word_is_reserved(word: str) -> None:
    assert query(f"QUERY {word} WHERE {word} = {word} RETURN [{word}]").type.text == word
    counted = query(f"QUERY x COUNT UNIQUE {word}, MAX {word} BY {word}, {word}")
    assert [one.column for one in counted.aggregates] == [f"count_unique_{word}", f"max_{word}"]
    assert [str(one) for one in counted.by] == [word, word]
    assert str(query(f"QUERY x USING {word} SINCE 2026-01-01").using) == word
    assert str(query(f"QUERY x ORDER BY {word} DESC LIMIT 1").order_by[0].field) == word


def test_a_field_may_be_called_as_the_aggregate_of_it() -> None:
    assert [one.column for one in query("QUERY x COUNT count BY limit").aggregates] == ["count_count"]
    assert [one.column for one in query("QUERY x COUNT, MAX max").aggregates] == ["count", "max_max"]


def test_clauses_of_a_sequence_come_in_any_order() -> None:
    found = query(
        'QUERY a FOLLOWED BY b LIMIT 3 WITHIN "2h" WHERE a.x = 1 USING TIME at LINKED BY y USING time'
    )
    assert (str(found.linked_by), str(found.using_time), str(found.using)) == ("y", "at", "time")
    assert (found.limit, found.within) == (3, timedelta(hours=2))


def test_keywords_come_in_any_case_and_names_as_they_are() -> None:
    found = query(
        'query SignUp where Plan != "free" and nOt (A is nOt null) count per Day by Country limit 3'
    )
    assert (found.type.text, found.per, str(found.by[0]), found.limit) == ("SignUp", "day", "Country", 3)


def test_comments_and_escapes() -> None:
    found = query('QUERY x -- all of it\nWHERE a = "\\u00e4\\n\\"" -- end')
    assert isinstance(found.where, tree.Comparison)
    assert found.where.value.value == 'ä\n"'


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("", "line 1, column 1", "QUERY"),
        ("QUERY", "line 1, column 6", "a name"),
        ("QUERY x\n  WHERE a = = 1", "line 2, column 13", "a number"),
        ("QUERY x WHERE (a = 1", "line 1, column 21", ")"),
        ("QUERY x LIMIT 1 LIMIT 2", "line 1, column 23", "once"),
        ("QUERY x COUNT COUNT COUNT", "line 1, column 7", "once"),
        ("QUERY x LIMIT -1", "line 1, column 15", "at least 0"),
        ("QUERY x LIMIT 1.5", "line 1, column 15", "at least 0"),
        ("QUERY x PER fortnight COUNT", "line 1, column 13", "week"),
        ("QUERY x PER day", "line 1, column 7", "aggregate"),
        ("QUERY x FOLLOWED BY y", "line 1, column 7", "LINKED BY"),
        ('QUERY x WHERE a = "', "line 1, column 19", "text"),
        ("QUERY x WHERE a = ;", "line 1, column 19", "a number"),
        ("QUERY x §", "line 1, column 9", "begins nothing"),
        ('STORE x FOR y PAYLOAD {"a": 1', "line 1, column 30", "JSON"),
        ('STORE x FOR y PAYLOAD {"a": 1, "a": 2}', "line 1, column 23", "twice"),
        ('STORE x FOR y PAYLOAD {"a": NaN}', "line 1, column 23", "NaN"),
        ("BATCH [ STORE x FOR y PAYLOAD {} ; STORE x FOR z PAYLOAD {} ]", "line 1, column 48", "one context"),
        ("RETAIN x FOR soon", "line 1, column 14", "duration"),
        ("QUERY x; QUERY y", "line 1, column 8", "the end"),
    ],
)
def test_what_is_refused_is_refused_by_its_place(text: str, place: str, expected: str) -> None:
    with pytest.raises(QueryError) as refused:
        parse(text)
    assert place in str(refused.value)
    assert expected in str(refused.value)


def test_depth_has_a_bound_and_length_has_none_to_speak_of() -> None:
    with pytest.raises(InputError, match="deep"):
        parse("QUERY x WHERE " + "(" * 5_000 + "a" + ")" * 5_000)
    with pytest.raises(InputError, match="deep"):
        parse("QUERY x WHERE " + "NOT " * 5_000 + "a")
    many = query("QUERY x WHERE " + " OR ".join(["a = 1"] * 2_000))
    assert isinstance(many.where, tree.AnyOf)


_WORDS = """QUERY REPLAY STORE BATCH REMEMBER WHERE AND OR NOT IN BETWEEN LIKE IS NULL COUNT UNIQUE PER day BY
ORDER LIMIT FOR SINCE RETURN FOLLOWED LINKED a b x "t" 5 -1.5 ( ) [ ] , ; = != <= { } {"a":1} . -- \\ " é"""
_PIECES = [*_WORDS.split(), "\n"]


_GOOD = [
    'QUERY a FOLLOWED BY b LINKED BY c WITHIN "2h" WHERE a.x IN (1, "y") COUNT PER day ORDER BY count',
    'STORE a FOR b AT "2026-01-01" EXPECT 5 PAYLOAD {"x": [1, {"y": null}]}',
    'BATCH [ STORE a FOR b PAYLOAD {} ; STORE c FOR b PAYLOAD {"z": 1.5e3} ]',
    'DEFINE a AS 2 FIELDS {"x": "int | null"}',
    'REMEMBER QUERY a COUNT PER day AS d KEEP 5 ROWS FOR "3d"',
    'REPLAY a FOR b SINCE 3 UNTIL "x" USING t RETURN [q, r]',
]


def _written(random: Random) -> str:
    choice = random.random()
    if choice < 0.4:
        return " ".join(random.choice(_PIECES) for _ in range(random.randrange(1, 15)))
    if choice < 0.5:
        signs = [random.randrange(32, 127), random.randrange(0x110000)]
        return "".join(chr(random.choice(signs)) for _ in range(random.randrange(40)))
    text = random.choice([*_GOOD, random_query(random)])
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(text) + 1)
        text = text[:at] + random.choice([*_PIECES, ""]) + text[at + random.randrange(4) :]
    return text


@pytest.mark.parametrize("texts", [600, pytest.param(100_000, marks=pytest.mark.long)])
def test_whatever_is_written_ends_in_a_command_or_a_refusal(texts: int) -> None:
    random = Random(3)
    parsed = 0
    for _ in range(texts):
        text = _written(random)
        try:
            parse(text)
            parsed += 1
        except InputError as error:
            assert "line " in str(error)
    assert parsed > texts / 100
