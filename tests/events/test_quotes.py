"""Texts with quotes and backslashes beside each other: each is found and forgotten by itself."""

from __future__ import annotations

from pathlib import Path

import weir.events

TEXTS = ["x''y", "x'y", "'", "''", "\\'", "\\''", "\\", "\\' OR 1=1 --", "a\\'' OR true OR t = ''", "z"]


def literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\")
    return f'"{escaped}"'


def test_texts_are_found_and_forgotten_whatever_their_quotes(tmp_path: Path) -> None:
    with weir.events.create(tmp_path, buckets=1, fsync=False) as store:
        store.define("a", {"t": "string"})
        with store.writer() as writer:
            for text in TEXTS:
                writer.append("a", text, {"t": text})

        def found(command: str) -> list[str]:
            result: list[str] = store.execute(command).to_table()["t"].to_pylist()
            return result

        for text in TEXTS:
            assert found(f"QUERY a WHERE t = {literal(text)} RETURN [t]") == [text]
            assert found(f"QUERY a FOR {literal(text)} RETURN [t]") == [text]
        for at, text in enumerate(TEXTS):
            store.execute(f"FORGET {literal(text)}")
            assert found("QUERY a RETURN [t]") == TEXTS[at + 1 :]


def test_many_texts_are_forgotten_beside_one_with_a_backslash_before_its_end(tmp_path: Path) -> None:
    """In some dialects it takes the quote literally, and what follows for names and parentheses."""
    slashes = ["\\", "a\\", "\\" * 2, "\\" * 3, "\\'", "\\\\'"]
    with weir.events.create(tmp_path, buckets=1, fsync=False) as store:
        store.define("a", {"t": "string"})
        names = [*slashes, *(f"(n{number}" for number in range(12))]
        with store.writer() as writer:
            for text in [*names, "last"]:
                writer.append("a", text, {"t": text})
        for text in names:
            store.forget(text)
            condition = " OR ".join(f"t = {literal(one)}" for one in [*names, "last"])
            assert store.execute(f"QUERY a WHERE {condition} COUNT").to_table().to_pylist() == [
                {"count": len(names) - names.index(text)}
            ]
        assert store.replay().to_table().column("context_id").to_pylist() == ["last"]
