"""Endpoints that are no object store: one that never answers, and one that answers everything with a page."""

from __future__ import annotations

import http.server
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import weir
from weir.base.dataset import library_options
from weir.errors import StorageError, WeirError
from weir.storage.open import open_store

_PLACE = "s3://bucket/table"
_SCHEMA = pa.schema([("id", pa.int64())])

CALLS: dict[str, Callable[[Mapping[str, str]], object]] = {
    "open": lambda options: weir.open(_PLACE, storage_options=options),
    "create": lambda options: weir.create(_PLACE, _SCHEMA, primary_key="id", storage_options=options),
    "adopt": lambda options: weir.adopt(_PLACE, primary_key="id", storage_options=options),
    "drop": lambda options: weir.drop(_PLACE, storage_options=options),
    "clone": lambda options: weir.clone(_PLACE, f"{_PLACE}-2", storage_options=options),
    "namespaces": lambda options: weir.namespaces.open(_PLACE, storage_options=options).names(),
    "open events": lambda options: weir.events.open(_PLACE, storage_options=options),
    "create events": lambda options: weir.events.create(_PLACE, storage_options=options),
}


def options_for(port: int, **more: str) -> dict[str, str]:
    return {
        "aws_access_key_id": "tester",
        "aws_secret_access_key": "secret",
        "aws_region": "us-east-1",
        "aws_endpoint": f"http://127.0.0.1:{port}",
        "allow_http": "true",
        **more,
    }


def test_an_endpoint_that_never_answers_is_an_error_of_every_call() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(100)
        options = options_for(
            silent.getsockname()[1], timeout="300ms", client_retry_timeout="1", client_max_retries="1"
        )

        def end_of(call: Callable[[Mapping[str, str]], object]) -> WeirError:
            with pytest.raises(WeirError) as raised:
                call(options)
            return raised.value

        with ThreadPoolExecutor(len(CALLS)) as threads:
            ends = dict(zip(CALLS, threads.map(end_of, CALLS.values()), strict=True))
    for name, error in ends.items():
        assert isinstance(error, StorageError), (name, error)
        assert "check that the store is reachable" in str(error.hint), (name, error)


def test_the_library_does_not_try_for_longer_than_weir_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself it took twelve minutes for a listing: six times four attempts of half a minute."""
    for name in list(os.environ):
        if name.lower().endswith("client_retry_timeout"):
            monkeypatch.delenv(name)
    given = options_for(1)
    assert library_options(open_store(_PLACE, given)) == {**given, "client_retry_timeout": "30"}
    said = {**given, "Client_Retry_Timeout": "90"}
    assert library_options(open_store(_PLACE, said)) == said
    monkeypatch.setenv("OBJECT_STORE_CLIENT_RETRY_TIMEOUT", "60")
    assert library_options(open_store(_PLACE, given)) == given


_NO_STORE = r"not an object store|invalid list response"
_PAGES = {
    "html": b"<!DOCTYPE html><html><body>Please log in</body></html>",
    "xhtml": b"<?xml version='1.0'?><html><body>Please log in</body></html>",
    "json": b'{"error": "no such page"}',
    "nothing": b"",
}


@pytest.fixture(params=_PAGES)
def portal(request: pytest.FixtureRequest) -> Iterator[int]:
    page = _PAGES[request.param]

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    for method in ("GET", "PUT", "POST", "HEAD", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.answer)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_page_passes_for_no_listing(portal: int) -> None:
    store = open_store(_PLACE, options_for(portal, client_max_retries="0"))
    for listed in (store.list, store.list_first, store.list_directories):
        with pytest.raises(StorageError, match=_NO_STORE):
            listed("data")


@pytest.mark.parametrize("call", ["create", "drop", "clone", "namespaces", "open events", "create events"])
def test_a_page_passes_for_no_empty_place(portal: int, call: str) -> None:
    with pytest.raises(StorageError, match=_NO_STORE):
        CALLS[call](options_for(portal, client_max_retries="0"))
