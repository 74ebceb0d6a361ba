"""What the service notes for a while is gone afterwards, and nothing else is."""

from __future__ import annotations

import os
import time
from pathlib import Path

import weir.namespaces
from weir.namespaces import Documents, Write
from weir.service.expiry import KEPT_SECONDS, remove_expired
from weir.service.idempotency import IdempotentWrites


def files(root: Path, directory: str) -> list[Path]:
    return sorted(path for path in (root / directory).rglob("*") if path.is_file())


def test_answers_are_kept_for_a_day(tmp_path: Path) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        namespace, writes = namespaces.namespace("docs"), IdempotentWrites(namespaces.store)
        write = Write(upserts=Documents.of_rows([{"id": 1, "v": 1}]))
        answer = writes.write(namespace, write, "caller", "key", b"body")
        [noted] = files(tmp_path, "idempotency")
        kept = KEPT_SECONDS["idempotency"]
        assert remove_expired(namespaces.store, time.time() + kept - 60) == 0
        assert writes.write(namespace, write, "caller", "key", b"body") == answer
        assert noted.exists()
        writes.close()  # what is noted in the background has been
        assert remove_expired(namespaces.store, time.time() + kept + 60) == 1
        assert not noted.exists()


def test_only_what_is_noted_for_a_while_goes(tmp_path: Path) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        namespaces.namespace("docs").write(Write(upserts=Documents.of_rows([{"id": 1}])))
        store = namespaces.store
        for directory in (*KEPT_SECONDS, "security/keys", "snapshots/docs"):
            for name in ("old", "new"):
                store.put(f"{directory}/{name}", b"{}")
        for path in tmp_path.rglob("*"):
            if path.is_file() and path.name != "new":
                os.utime(path, (1_000_000_000, 1_000_000_000))
        before = files(tmp_path, ".")
        assert remove_expired(store) == len(KEPT_SECONDS)
        gone = {path.relative_to(tmp_path).as_posix() for path in {*before} - {*files(tmp_path, ".")}}
        assert gone == {f"{directory}/old" for directory in KEPT_SECONDS}
        assert namespaces.namespace("docs").count() == 1
