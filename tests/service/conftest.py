"""A service for the tests of a module, and the clients that talk to it."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import turbopuffer

from tests.service.process import ServiceProcess
from weir.service.keys.store import KeyStore
from weir.storage.open import open_store

_numbers = itertools.count()


class Served:
    """A service with keys, and what is needed to talk to it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.key = self.new_key("admin")
        self.process = ServiceProcess(root, "--no-fsync", "--compaction-interval", "5s", auth=True)
        self._clients: list[Any] = []

    def new_key(self, role: str, *namespaces: str) -> str:
        """Make a key, without a process for it."""
        return KeyStore(open_store(self.root, fsync=False)).create("test", role, namespaces)[1]

    def client(self, key: str | None = None, **options: Any) -> Any:
        """Return the unmodified client; what it says of types is too narrow for what it takes."""
        client = turbopuffer.Turbopuffer(
            api_key=key or self.key, base_url=self.process.url, max_retries=0, **options
        )
        self._clients.append(client)
        return client

    def close_clients(self) -> None:
        """Close the clients, which nobody else does."""
        for client in self._clients:
            client.close()

    def http(self, key: str | None = None) -> httpx2.Client:
        """Return a plain client of HTTP."""
        return httpx2.Client(
            base_url=self.process.url,
            headers={"authorization": f"Bearer {key or self.key}"},
            timeout=60,
            trust_env=False,
        )


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service that the tests of a process share, each with namespaces of its own."""
    running = Served(tmp_path_factory.mktemp("service"))
    yield running
    running.close_clients()
    gc.collect()
    code, error = running.process.stop()
    assert code == 0, error


@pytest.fixture
def client(served: Served) -> Any:
    """The client, with the key of an administrator."""
    return served.client()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A namespace that no other test has."""
    return f"ns-{next(_numbers)}-{abs(hash(request.node.nodeid)) % 100_000}"
