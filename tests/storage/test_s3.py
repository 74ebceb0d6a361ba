"""The object-store backend against a real S3 endpoint, and against endpoints that misbehave."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import lance
import pyarrow as pa
import pytest

from tests.storage.kit import NewStore, StoreKit
from tests.storage.s3 import S3Endpoint, s3_endpoint
from weir.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    OptionError,
    PreconditionError,
    StorageError,
    UriError,
)
from weir.storage import object_store
from weir.storage.object_store import ObjectStoreBackend

__all__ = ["s3_endpoint"]

OPTIONS = {
    "access_key_id": "tester",
    "secret_access_key": "secret",
    "region": "us-east-1",
    "allow_http": "true",
}


class TestS3(StoreKit):
    threads = 4
    rounds = 4
    versions = 8
    examples = 5
    large = 9_000_000

    @pytest.fixture
    def new_store(self, s3_endpoint: S3Endpoint) -> NewStore:
        return lambda: ObjectStoreBackend(s3_endpoint.new_uri("täble one"), s3_endpoint.options)

    def test_root_of_a_bucket(self, s3_endpoint: S3Endpoint) -> None:
        store = ObjectStoreBackend(s3_endpoint.new_uri(""), s3_endpoint.options)
        store.put("a/b", b"1")
        assert [meta.path for meta in store.list("")] == ["a/b"]
        assert list(store.list_directories("")) == ["a"]

    def test_prefixes_of_a_bucket_are_apart(self, s3_endpoint: S3Endpoint) -> None:
        uri = s3_endpoint.new_uri("table")
        one = ObjectStoreBackend(uri, s3_endpoint.options)
        other = ObjectStoreBackend(f"{uri}2/", s3_endpoint.options)
        one.put("a", b"1")
        other.put("b", b"2")
        assert [meta.path for meta in one.list("")] == ["a"]
        assert [meta.path for meta in other.list("")] == ["b"]
        assert other.uri == f"{uri}2"

    @pytest.mark.parametrize("path", ["table", "two words/täble", "percent%20encoded", "100%25", "a+b&c=d"])
    def test_lance_reads_and_writes_the_same_place(self, s3_endpoint: S3Endpoint, path: str) -> None:
        store = ObjectStoreBackend(s3_endpoint.new_uri(path), s3_endpoint.options)
        options = dict(store.storage_options)
        lance.write_dataset(pa.table({"a": [1, 2, 3]}), store.uri, storage_options=options)
        assert any(meta.path.endswith(".manifest") for meta in store.list("_versions"))
        store.put("_mem_wal/x/wal/1.arrow", b"entry")
        assert lance.dataset(store.uri, storage_options=options).count_rows() == 3
        assert list(store.list_directories("")) == ["_mem_wal", "_transactions", "_versions", "data"]

    def test_large_unconditional_puts_go_up_in_parts(
        self, s3_endpoint: S3Endpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(object_store, "_PARTS_FROM", 6_000_000)
        monkeypatch.setattr(object_store, "_PART_SIZE", 5 * 1024 * 1024)
        store = ObjectStoreBackend(s3_endpoint.new_uri(), s3_endpoint.options)
        content = bytes(range(256)) * 30_000
        store.put("a", [content[:1_000_000], memoryview(content)[1_000_000:]])
        assert bytes(store.get("a")) == content
        meta = store.head("a")
        assert meta is not None
        assert meta.version.rstrip('"').endswith("-2"), "the ETag of an object of two parts"

    def test_missing_bucket(self, s3_endpoint: S3Endpoint) -> None:
        store = ObjectStoreBackend("s3://no-such-bucket/table", s3_endpoint.options)
        operations: list[Callable[[], object]] = [
            lambda: store.get("a"),
            lambda: store.get_range("a", 0, 1),
            lambda: store.list(""),
            lambda: store.list_directories(""),
            lambda: store.put("a", b"1"),
            lambda: store.put_if_absent("a", b"1"),
            lambda: store.delete(["a"]),
        ]
        for operation in operations:
            with pytest.raises(StorageError, match="bucket or container does not exist") as caught:
                operation()
            assert not isinstance(caught.value, ObjectNotFoundError)
            assert "s3://no-such-bucket" in str(caught.value)

    def test_environment_fills_in_the_options(
        self, s3_endpoint: S3Endpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        uri = s3_endpoint.new_uri()
        for name, value in s3_endpoint.options.items():
            monkeypatch.setenv(name.upper(), value)
        monkeypatch.setenv("AWS_REGION", "nowhere-1")
        store = ObjectStoreBackend(uri, {"region": "us-east-1"})
        store.put("a", b"1")
        assert dict(store.storage_options) == {"region": "us-east-1"}
        assert bytes(store.get("a")) == b"1"
        lance.write_dataset(pa.table({"a": [1]}), uri, storage_options=dict(store.storage_options))
        assert "data" in store.list_directories("")


# ---------------------------------------------------------------------- endpoints that misbehave


@dataclass
class Script:
    """What the endpoint answers, one after the other, the last one for ever; and what it was asked."""

    answers: list[tuple[int, str]]
    asked: list[str] = field(default_factory=list)

    def next(self, method: str) -> tuple[int, str]:
        self.asked.append(method)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def scripted_endpoint(*answers: tuple[int, str]) -> Iterator[tuple[str, Script]]:
    script = Script(list(answers))

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            status, code = script.next(self.command)
            body = b"" if self.command == "HEAD" else f"<Error><Code>{code}</Code></Error>".encode()
            self.send_response(status)
            self.send_header("ETag", f'"{code}"')
            self.send_header("Last-Modified", "Fri, 20 Nov 2026 10:00:00 GMT")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", script
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def open_at(endpoint: str, **options: str) -> ObjectStoreBackend:
    every = {**OPTIONS, "endpoint": endpoint, "client_max_retries": "0", **options}
    return ObjectStoreBackend("s3://some-bucket/table", every)


@pytest.fixture
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_CONFLICT_WAIT_SECONDS", 0.0)


@pytest.mark.usefixtures("_no_waiting")
class TestConflicts:
    """409 says that another request was under way, not how it ended."""

    BUSY = (409, "ConditionalRequestConflict")

    def test_put_if_absent_is_tried_again_while_there_is_nothing(self) -> None:
        with scripted_endpoint(self.BUSY, (404, ""), self.BUSY, (404, ""), (200, "new")) as (url, script):
            open_at(url).put_if_absent("a", b"1")
        assert script.asked == ["PUT", "HEAD", "PUT", "HEAD", "PUT"]

    def test_put_if_absent_loses_when_the_other_one_has_won(self) -> None:
        with scripted_endpoint(self.BUSY, (200, "other")) as (url, _), pytest.raises(ObjectExistsError):
            open_at(url).put_if_absent("a", b"1")

    def test_swap_is_tried_again_while_the_version_is_the_same(self) -> None:
        with scripted_endpoint(self.BUSY, (200, "old"), (200, "new")) as (url, script):
            assert open_at(url).compare_and_swap("a", b"1", '"old"') == '"new"'
        assert script.asked == ["PUT", "HEAD", "PUT"]

    @pytest.mark.parametrize("answer", [(200, "other"), (404, "")])
    def test_swap_loses_when_the_object_has_changed(self, answer: tuple[int, str]) -> None:
        with scripted_endpoint(self.BUSY, answer) as (url, _), pytest.raises(PreconditionError):
            open_at(url).compare_and_swap("a", b"1", '"old"')

    def test_endless_conflict_is_an_error(self) -> None:
        answers = [self.BUSY, (404, "")] * 20
        with (
            scripted_endpoint(*answers) as (url, _),
            pytest.raises(StorageError, match="another request was under way") as caught,
        ):
            open_at(url).put_if_absent("a", b"1")
        assert not isinstance(caught.value, ObjectExistsError)


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        ((403, "AccessDenied"), "Check the credentials"),
        ((401, "InvalidAccessKeyId"), "Check the credentials"),
        ((400, "ExpiredToken"), "credentials have expired"),
        ((301, "PermanentRedirect"), "aws_region"),
        ((400, "InvalidRequest"), "region, endpoint and bucket"),
        ((500, "InternalError"), "try later"),
        ((503, "SlowDown"), "try later"),
        ((429, "TooManyRequests"), "slow down"),
    ],
)
def test_refusals_say_what_to_do(answer: tuple[int, str], hint: str) -> None:
    with scripted_endpoint(answer) as (url, _):
        store = open_at(url)
        operations: list[Callable[[], object]] = [
            lambda: store.get("a"),
            lambda: store.get_range("a", 0, 10),
            lambda: store.head("a"),
            lambda: store.list(""),
            lambda: store.list_directories(""),
            lambda: store.put("a", b"1"),
            lambda: store.put_if_absent("a", b"1"),
            lambda: store.compare_and_swap("a", b"1", "1"),
            lambda: store.delete(["a"]),
        ]
        for operation in operations:
            with pytest.raises(StorageError) as caught:
                operation()
            if operation is not operations[2]:  # the answer to HEAD has no body
                assert hint in str(caught.value)
            assert "s3://some-bucket/table" in str(caught.value)
            assert "Debug source" not in str(caught.value)
            assert not isinstance(caught.value, ObjectNotFoundError | ObjectExistsError | PreconditionError)


def test_requests_are_repeated() -> None:
    with scripted_endpoint((503, "SlowDown"), (500, "InternalError"), (200, "new")) as (url, script):
        open_at(url, client_max_retries="5").put("a", b"1")
    assert script.asked == ["PUT"] * 3


def test_endpoint_that_does_not_answer() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        store = open_at(f"http://127.0.0.1:{silent.getsockname()[1]}", request_timeout="100ms")
        with pytest.raises(StorageError, match="'timeout'"):
            store.get("a")
        with pytest.raises(StorageError, match="'timeout'"):
            store.get_range("a", 0, 1)


def test_endpoint_where_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(StorageError, match="endpoint"):
            open_at(f"http://127.0.0.1:{unused.getsockname()[1]}").put("a", b"1")


def test_plain_http_has_to_be_allowed(s3_endpoint: S3Endpoint) -> None:
    options = {**s3_endpoint.options, "allow_http": "false", "client_max_retries": "0"}
    with pytest.raises(StorageError, match="allow_http"):
        ObjectStoreBackend(s3_endpoint.new_uri(), options).get("a")


def test_headers_are_sent() -> None:
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("x-tenant"))
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        store = open_at(f"http://127.0.0.1:{server.server_port}", **{"headers.X-Tenant": "seven"})
        with pytest.raises(ObjectNotFoundError):
            store.get("a")
        thread.join()
    assert seen == ["seven"]


# ---------------------------------------------------------------------- opening


def test_values_that_do_not_fit_are_option_errors() -> None:
    for options in ({"timeout": "soon"}, {"allow_http": "maybe"}, {"access_key_id": "only"}):
        with pytest.raises(OptionError) as caught:
            ObjectStoreBackend("s3://bucket/table", options)
        assert "Debug source" not in str(caught.value)
        assert caught.value.where == "s3://bucket/table"


def test_stores_of_other_clouds_open_with_their_options() -> None:
    google = ObjectStoreBackend("gs://bucket/table", {"skip_signature": "true", "timeout": "5s"})
    assert google.uri == "gs://bucket/table"
    azure = ObjectStoreBackend("az://container/table", {"account_name": "account", "account_key": "a2V5"})
    assert azure.uri == "az://container/table"
    lake = "abfss://container@account.dfs.core.windows.net/table"
    assert ObjectStoreBackend(lake, {"azure_storage_account_key": "a2V5"}).uri == lake
    express = ObjectStoreBackend("s3://bucket--use1-az4--x-s3/table", {**OPTIONS})
    assert not express.is_local
    with pytest.raises(OptionError, match="Account"):
        ObjectStoreBackend("az://container/table")
    with pytest.raises(UriError):
        ObjectStoreBackend("/local/path")


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(ObjectStoreBackend("s3://bucket/table", OPTIONS))
