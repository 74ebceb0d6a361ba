"""All rows of a generation, read from its file or by a scan: compared with what a scan returns."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from weir.errors import CorruptionError
from weir.lsm.whole_rows import whole_rows

_ROWS = 300_000


def _rows(count: int = _ROWS) -> pa.Table:
    ids = np.random.default_rng(0).permutation(count)
    nested = pa.array([{"a": n, "b": [n]} for n in range(100)]).take(pa.array(ids % 100))
    texts = pa.array([None if n % 7 == 0 else f"text {n}" for n in ids])
    return pa.table({"id": pa.array(ids), "n": nested, "text": texts, "flag": pa.array(ids % 3 == 0)})


def _expected(dataset: lance.LanceDataset, columns: list[str]) -> tuple[pa.Table, list[int]]:
    found = dataset.scanner(columns=columns, with_row_id=True, scan_in_order=True).to_table()
    return found.select(columns), found.column("_rowid").to_pylist()


def _check(dataset: lance.LanceDataset, columns: list[str], *, is_local: bool = True) -> None:
    rows, row_ids = whole_rows(dataset, columns, is_local=is_local)
    expected, expected_ids = _expected(dataset, columns)
    assert rows.equals(expected)
    assert row_ids.dtype == np.uint64
    assert row_ids.tolist() == expected_ids


@pytest.fixture
def no_scans(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("it was scanned")

    monkeypatch.setattr(lance.LanceDataset, "scanner", refused)
    return monkeypatch


@pytest.mark.parametrize("columns", [["id"], ["flag", "id"], ["text", "n", "id"]])
@pytest.mark.parametrize("is_local", [True, False])
def test_rows_are_those_of_a_scan(tmp_path: Path, columns: list[str], is_local: bool) -> None:
    dataset = lance.write_dataset(_rows(), str(tmp_path / "rows"))
    _check(dataset, columns, is_local=is_local)


def test_one_file_is_read_without_a_scan(tmp_path: Path, no_scans: pytest.MonkeyPatch) -> None:
    dataset = lance.write_dataset(_rows(1_000), str(tmp_path / "rows"))
    rows, row_ids = whole_rows(dataset, ["id"], is_local=True)
    assert rows.equals(_rows(1_000).select(["id"]))
    assert row_ids.tolist() == list(range(1_000))
    with pytest.raises(AssertionError, match="scanned"):
        whole_rows(dataset, ["id"], is_local=False)


def test_a_number_of_rows_that_the_manifest_does_not_know_is_refused(tmp_path: Path) -> None:
    dataset = lance.write_dataset(_rows(1_000), str(tmp_path / "rows"))
    other = lance.write_dataset(_rows(999), str(tmp_path / "other"))
    (file,) = (tmp_path / "rows" / "data").iterdir()
    (shorter,) = (tmp_path / "other" / "data").iterdir()
    file.write_bytes(shorter.read_bytes())
    assert other.count_rows() == 999
    with pytest.raises(CorruptionError, match=r"999 rows were read of 1000"):
        whole_rows(dataset, ["id"], is_local=True)


def _deleted(uri: str) -> lance.LanceDataset:
    dataset = lance.write_dataset(_rows(1_000), uri)
    dataset.delete("id < 500")
    return dataset


def _renamed(uri: str) -> lance.LanceDataset:
    dataset = lance.write_dataset(_rows(1_000).select(["id", "text"]), uri)
    dataset.alter_columns({"path": "id", "name": "was"})  # type: ignore[dict-item]
    dataset.alter_columns({"path": "text", "name": "id"})  # type: ignore[dict-item]
    return dataset


def _of_two_files(uri: str) -> lance.LanceDataset:
    return lance.write_dataset(_rows(1_000), uri, max_rows_per_file=600)


def _with_stable_ids(uri: str) -> lance.LanceDataset:
    return lance.write_dataset(_rows(1_000), uri, enable_stable_row_ids=True)


def _of_old_files(uri: str) -> lance.LanceDataset:
    return lance.write_dataset(_rows(1_000).select(["id"]), uri, data_storage_version="legacy")


def _empty(uri: str) -> lance.LanceDataset:
    return lance.write_dataset(_rows(0).select(["id"]), uri, mode="create")


@pytest.mark.parametrize("make", [_deleted, _renamed, _of_two_files, _with_stable_ids, _of_old_files, _empty])
def test_other_datasets_are_scanned(tmp_path: Path, make: object) -> None:
    assert callable(make)
    _check(make(str(tmp_path / "rows")), ["id"])


_KINDS = {
    "bool": pa.array([True, None, False]),
    "empty text": pa.array(["a", None, ""]),
    "binary": pa.array([b"a", None, b""]),
    "fixed binary": pa.array([b"ab", None, b"cd"], pa.binary(2)),
    "decimal": pa.array([Decimal("1.20"), None, Decimal(3)], pa.decimal128(12, 2)),
    "timestamp": pa.array([1, None, 2], pa.timestamp("us", "UTC")),
    "date": pa.array([1, None, 2], pa.date32()),
    "time": pa.array([1, None, 2], pa.time64("us")),
    "duration": pa.array([1, None, 2], pa.duration("s")),
    "uint64": pa.array([1, None, 2**64 - 1], pa.uint64()),
    "vector": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2)),
    "null": pa.nulls(3),
    "json": pa.array(['{"a":1}', None, "2"], pa.json_()),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"a" * 16, None, b"c" * 16], pa.binary(16))),
    "dictionary": pa.array(["a", None, "b"]).dictionary_encode(),
    "list": pa.array([[1], None, []]),
    "struct": pa.array([{"a": 1}, None, {"a": 2}]),
}


@pytest.mark.parametrize("kind", _KINDS)
def test_values_are_those_of_a_scan(tmp_path: Path, kind: str) -> None:
    """The library stores JSON in another form than it returns."""
    rows = pa.table({"id": [1, 2, 3], "value": _KINDS[kind]})
    dataset = lance.write_dataset(rows, str(tmp_path / "rows"))
    _check(dataset, ["value"])
    _check(dataset, ["id", "value"])


def test_no_columns_are_rows_all_the_same(tmp_path: Path) -> None:
    dataset = lance.write_dataset(_rows(1_000), str(tmp_path / "rows"))
    rows, row_ids = whole_rows(dataset, [], is_local=True)
    assert rows.column_names == []
    assert row_ids.tolist() == list(range(1_000))
