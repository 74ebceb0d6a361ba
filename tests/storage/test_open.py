"""Which store a location opens."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import lance
import pyarrow as pa
import pytest

from weir.errors import OptionError, UriError
from weir.storage.local import LocalStore
from weir.storage.location import parse_location
from weir.storage.object_store import ObjectStoreBackend
from weir.storage.open import open_store

OPTIONS = {"access_key_id": "tester", "secret_access_key": "secret"}


def test_paths(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    for given, expected in {
        "/data/table": "/data/table",
        "/data/table/": "/data/table",
        "/data/../data//./table": "/data/table",
        "table": f"{tmp_path}/table",
        "./a/../b": f"{tmp_path}/b",
        ".": f"{tmp_path}",
        "~": "/home/somebody",
        "~/table": "/home/somebody/table",
        "a~b": f"{tmp_path}/a~b",
        "./s3:/bucket": f"{tmp_path}/s3:/bucket",
        "s3x:/bucket": f"{tmp_path}/s3x:/bucket",
        "C:x": f"{tmp_path}/C:x",
        "/percent%20sign": "/percent%20sign",
        "/": "/",
    }.items():
        store = open_store(given)
        assert isinstance(store, LocalStore)
        assert store.uri == expected
        assert store.is_local
        assert dict(store.storage_options) == {}
    assert open_store(tmp_path / "table").uri == f"{tmp_path}/table"


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///data/table", "/data/table"),
        ("file://localhost/data/table/", "/data/table"),
        ("FILE:///data/table", "/data/table"),
        ("file:///two%20words/100%25", "/two words/100%"),
        ("file:///~/table", "/~/table"),
        ("file:///ünï", "/ünï"),
    ],
)
def test_file_uris(uri: str, path: str) -> None:
    assert open_store(uri).uri == path


@pytest.mark.parametrize("name", ["plain", "two words", "100%", "a%20b", "hash#1", "question?", "ünï ☃"])
def test_lance_opens_what_the_uri_says(tmp_path: pathlib.Path, name: str) -> None:
    for given in (tmp_path / name, (tmp_path / name).as_uri()):
        store = open_store(given, fsync=False)
        lance.write_dataset(pa.table({"a": [1]}), store.uri, mode="overwrite")
        assert "data" in store.list_directories("")
    assert os.listdir(tmp_path) == [name]


def test_switch_for_waiting(tmp_path: pathlib.Path) -> None:
    default, without = open_store(tmp_path), open_store(tmp_path, fsync=False)
    assert isinstance(default, LocalStore)
    assert isinstance(without, LocalStore)
    assert default.waits_for_disk
    assert not without.waits_for_disk


@pytest.mark.parametrize(
    ("uri", "expected", "options"),
    [
        ("s3://bucket", "s3://bucket", OPTIONS),
        ("s3://bucket/", "s3://bucket", OPTIONS),
        ("s3://bucket/a/b/", "s3://bucket/a/b", OPTIONS),
        ("S3://bucket/Table", "s3://bucket/Table", OPTIONS),
        ("s3a://bucket/a", "s3://bucket/a", OPTIONS),
        ("gs://bucket/a", "gs://bucket/a", {"skip_signature": "true"}),
        ("az://container/a", "az://container/a", {"account_name": "account", "account_key": "a2V5"}),
        ("memory://name/a", "memory://name/a", None),
    ],
)
def test_object_stores(uri: str, expected: str, options: dict[str, str] | None) -> None:
    store = open_store(uri, options)
    assert isinstance(store, ObjectStoreBackend)
    assert store.uri == expected
    assert not store.is_local
    assert dict(store.storage_options) == (options or {})


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "  ",
        "ftp://host/table",
        "http://host/table",
        "hdfs://host/table",
        "s3://",
        "s3:///table",
        "file://table",
        "file://other-machine/table",
        "s3+ddb://bucket/table?ddbTableName=locks",
        "s3://bucket/table?version=1",
        "s3://bucket/table#part",
        "s3://bucket/table?",
        "s3://bucket/a//b",
        "s3://bucket/../other",
        "s3://bucket/a/%2e%2e/b",
        "az://container@account/table",
        "s3://a bucket/table",
        "gs://b\0/table",
        "az://caf\u00e9/table",
        "abfss://container/table",
        "abfss://@account.dfs.core.windows.net/table",
        "file:///nul%00byte",
        "nul\0byte",
        "half\ud800",
        "s3://bucket/half\ud800",
        "s3://[bucket/table",
        "s3:/bucket/table",
        "s3a:bucket/table",
        "gcs:/bucket/table",
        "file:/data/table",
    ],
)
def test_locations_that_cannot_be_understood(uri: str) -> None:
    with pytest.raises(UriError) as caught:
        open_store(uri)
    assert caught.value.hint
    assert caught.value.where is not None


def test_unsupported_schemes_say_what_is_supported() -> None:
    with pytest.raises(UriError, match="ftp") as caught:
        open_store("ftp://host/table")
    for kind in ("s3://", "gs://", "az://", "abfss://", "file://", "memory://", "a path"):
        assert kind in str(caught.value)


@pytest.mark.parametrize("uri", [None, 7, b"/data"])
def test_locations_that_are_no_text(uri: Any) -> None:
    with pytest.raises(UriError, match="neither text"):
        open_store(uri)


def test_local_paths_have_no_options() -> None:
    with pytest.raises(OptionError, match="aws_region"):
        open_store("/data/table", {"aws_region": "eu-west-1"})
    assert open_store("/data/table", {}).is_local


def test_unknown_options_are_found_before_anything_is_asked() -> None:
    with pytest.raises(OptionError, match="aws_region"):
        open_store("s3://bucket/table", {"aws_regoin": "eu-west-1"})


def test_parsed_location_is_a_value() -> None:
    assert parse_location("s3://b/a") == parse_location("s3a://b/a/")
    assert hash(parse_location("s3://b/a")) == hash(parse_location("s3://b/a"))
