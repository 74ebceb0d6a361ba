"""Several processes on one root: one writes a namespace, the others pass writes on and take over."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import turbopuffer

import weir
import weir.namespaces
from tests.service.process import ServiceProcess
from tests.service.test_planted_bugs import Root
from weir.namespaces import Documents, Write
from weir.service.options import ServiceOptions
from weir.service.ownership.forwarding import Forwarder, UnreachableError
from weir.service.ownership.members import Members
from weir.service.ownership.owners import Owners, preferred


@pytest.fixture
def client_of() -> Iterator[Callable[..., Any]]:
    """Makes clients, which are closed in the end."""
    with ExitStack() as made:
        yield lambda process, retries=0: made.enter_context(
            turbopuffer.Turbopuffer(api_key="none", base_url=process.url, max_retries=retries)
        )


def ids(client: Any, name: str) -> list[Any]:
    return [row.id for row in client.namespace(name).query(rank_by=("id", "asc"), top_k=1000).rows]


def test_writes_reach_the_owner_whoever_is_asked_and_a_killed_owner_is_replaced(
    tmp_path: Path, client_of: Callable[..., Any]
) -> None:
    processes = [ServiceProcess(tmp_path, "--compaction-interval", "1s") for _ in range(2)]
    clients = [client_of(process) for process in processes]
    names = [f"ns-{number}" for number in range(4)]
    for number in range(6):
        for name in names:
            clients[number % 2].namespace(name).write(upsert_rows=[{"id": number, "n": number}])
    for name in names:
        assert ids(clients[0], name) == ids(clients[1], name) == list(range(6))
        # Decided where it is written, so that nothing is lost in between.
        answer = clients[1].namespace(name).write(patch_rows=[{"id": 3, "n": 30}])
        assert answer.rows_patched == 1
    # Whoever was asked first, there is one table of each.
    assert [len(list((tmp_path / "namespaces" / name).iterdir())) for name in names] == [1] * len(names)

    processes[0].kill()
    assert ids(clients[1], names[0]) == list(range(6))
    patient = client_of(processes[1], retries=20)
    for name in names:
        patient.namespace(name).write(upsert_rows=[{"id": 6, "n": 6}])
    for name in names:
        assert ids(clients[1], name) == list(range(7))

    third = ServiceProcess(tmp_path)
    last = client_of(third)
    assert ids(last, names[0]) == list(range(7))
    code, error = processes[1].stop()
    assert code == 0, error
    # Handed over in order: nobody waits for a lease.
    for name in names:
        last.namespace(name).write(upsert_rows=[{"id": 7}])
        assert ids(last, name) == list(range(8))
    assert third.stop()[0] == 0


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [(b"x", OSError, "does not answer"), (bytes(32 << 20), UnreachableError, "takes no more")],
)
def test_nobody_waits_for_a_process_that_does_not_live_any_more(
    body: bytes, error: type[Exception], message: str
) -> None:
    forwarder = Forwarder(60.0)
    asked: list[None] = []

    def lives() -> bool:
        asked.append(None)
        return False

    with socket.create_server(("127.0.0.1", 0)) as server:  # as one that sleeps: it takes no connection
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(error, match=message):
            forwarder.forward(url, "POST", "/", {}, body, lives)
    assert len(asked) == 1
    forwarder.close()


def test_a_process_that_takes_long_for_one_request_is_not_taken_for_gone(tmp_path: Path) -> None:
    root = Root(tmp_path, ServiceOptions(fsync=False, request_timeout=0.1))
    store = root.namespaces.store
    with socket.create_server(("127.0.0.1", 0)) as server:  # takes the request, and does not answer
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        here, slow = Members(store, "http://here", "here"), Members(store, url, "slow")
        here.start()
        slow.start()
        try:
            root.service.owners = Owners(here)
            name = next(one for one in map(str, range(99)) if preferred(one, here.live()) == slow.here)
            status, told = root.ask("POST", f"/v2/namespaces/{name}", {"upsert_rows": [{"id": 1}]})
            assert (status, "timed out" in told["error"]) == (503, True)
            assert slow.here in here.live()
        finally:
            here.stop()
            slow.stop()
    root.service.close()


def test_a_write_beside_a_deletion_by_another_process_makes_the_namespace_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Root(tmp_path)
    store = root.namespaces.store
    here, there = Members(store, "http://here", "here"), Members(store, "http://there", "there")
    here.start()
    there.start()
    try:
        root.service.owners = Owners(here)
        name = next(one for one in map(str, range(99)) if preferred(one, here.live()) == here.here)
        with weir.namespaces.open(tmp_path, fsync=False) as others:
            others.namespace(name).write(Write(upserts=Documents.of_rows([{"id": 1, "v": 1}])))
        root.namespaces.namespace(name).find()
        status = weir.Table.status

        def deleted_before(table: weir.Table) -> Any:
            monkeypatch.undo()
            with weir.namespaces.open(tmp_path, fsync=False) as others:
                others.namespace(name).delete()
            return status(table)

        monkeypatch.setattr(weir.Table, "status", deleted_before)
        root.write(name, upsert_rows=[{"id": 2, "v": 2}])
        assert root.values(name) == {2: 2}
    finally:
        here.stop()
        there.stop()
    root.service.close()


def test_connections_to_processes_that_are_gone_are_closed() -> None:
    forwarder = Forwarder(60.0)

    def asked_and_gone() -> str:
        """Forward something to a process that ends once it has answered."""
        with socket.create_server(("127.0.0.1", 0)) as server:

            def answer() -> None:
                taken.append(server.accept()[0])
                taken[0].recv(65_536)
                taken[0].sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

            taken: list[socket.socket] = []
            answering = threading.Thread(target=answer)
            answering.start()
            url = f"http://127.0.0.1:{server.getsockname()[1]}"
            assert forwarder.forward(url, "GET", "/", {}, b"")[0] == 200
            answering.join()
            taken[0].close()
            return url

    first = asked_and_gone()
    [left] = forwarder._idle[first]
    second = asked_and_gone()
    assert left.sock is None
    assert list(forwarder._idle) == [second]
    forwarder.close()
