"""The manifests of a base table, as the library writes them."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from weir.errors import CorruptionError
from weir.format.table_manifest import head_message, made_by_one_transaction


def written(place: Path, versions: int) -> list[bytes]:
    """Return the manifests of a new dataset, oldest first."""
    for _ in range(versions):
        lance.write_dataset(
            pa.table({"id": [1, 2]}), str(place), mode="append" if place.exists() else "create"
        )
    return [path.read_bytes() for path in sorted((place / "_versions").glob("*.manifest"), reverse=True)]


def test_two_manifests_of_one_number_are_told_apart(tmp_path: Path) -> None:
    """As where a backup has taken the place of a table and has come to the same number."""
    first, second = written(tmp_path / "one", 2)
    _, other = written(tmp_path / "other", 2)
    same = head_message(second, where="")
    assert made_by_one_transaction(second, same, where="")
    assert not made_by_one_transaction(second, head_message(first, where=""), where="")
    assert not made_by_one_transaction(second, head_message(other, where=""), where="")


def test_the_message_is_the_one_that_the_library_hands_out(tmp_path: Path) -> None:
    _, newest = written(tmp_path / "one", 2)
    dataset = lance.dataset(str(tmp_path / "one"))
    *_, found = dataset.__getstate__()[:4]  # type: ignore[no-untyped-call]
    assert made_by_one_transaction(newest, found, where="")
    opened = lance.LanceDataset(dataset.uri, 2, serialized_manifest=head_message(newest, where=""))
    assert (opened.version, opened.count_rows()) == (2, 4)


def test_what_is_no_message_is_corrupt(tmp_path: Path) -> None:
    [manifest] = written(tmp_path / "one", 1)
    with pytest.raises(CorruptionError):
        made_by_one_transaction(manifest, b"\xff\xff\xff", where="here")
