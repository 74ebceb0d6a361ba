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
