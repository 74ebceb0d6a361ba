"""Vectors in base64 as the service decodes them: what the standard library reads, and nothing else."""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from weir.errors import InputError
from weir.namespaces import parse_type
from weir.namespaces.values import as_column
from weir.namespaces.vectors import Base64Texts
from weir.service.turbopuffer.writes import parse_write

TYPE = parse_type("[2]f32")
CODED = st.binary(min_size=8, max_size=8).map(lambda raw: base64.b64encode(raw).decode())
BROKEN = st.text("Aa+/=-_ \n\0é*", max_size=14)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A vector in base64, of which a character was lost, or another one put in."""
    text = draw(CODED)
    at = draw(st.integers(0, len(text)))
    return text[:at] + draw(st.sampled_from(["", "=", "A", "\n", "é"])) + text[at + draw(st.integers(0, 1)) :]


def outcome(values: list[Any]) -> object:
    """The bytes of a column, or why there is none."""
    try:
        return as_column("vector", TYPE, values).flatten().buffers()[1].to_pybytes()
    except InputError as error:
        return error.message


@given(st.lists(CODED | BROKEN | damaged(), min_size=1, max_size=4))
def test_texts_are_read_as_the_standard_library_reads_them(texts: list[str]) -> None:
    write = parse_write({"upsert_rows": [{"id": at, "vector": one} for at, one in enumerate(texts)]}, 8)
    assert write.upserts is not None
    found = write.upserts.values["vector"]
    assert isinstance(found, Base64Texts)
    assert outcome(found) == outcome(texts)


def test_a_text_that_could_be_a_vector_is_a_text_where_one_is_declared(client: Any, name: str) -> None:
    text = base64.b64encode(bytes(8)).decode()
    namespace = client.namespace(name)
    namespace.write(upsert_rows=[{"id": 1, "vector": text}], schema={"vector": "string"})
    namespace.write(upsert_columns={"id": [2], "vector": [text]})
    rows = namespace.query(rank_by=("id", "asc"), top_k=2, include_attributes=["vector"]).rows
    assert [row.vector for row in rows] == [text, text]
