"""What checks the service's promises finds a service that breaks them: bugs are planted, and each is seen."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

import weir
import weir.namespaces
from weir.service.app import application
from weir.service.context import Service
from weir.service.events.stores import EventStores
from weir.service.keys.store import KeyStore
from weir.service.options import ServiceOptions
from weir.service.telemetry import Telemetry


class Root:
    """A service on a root, asked without a network in between."""

    def __init__(self, root: Path, options: ServiceOptions | None = None) -> None:
        self.root = root
        options = options or ServiceOptions(fsync=False)
        self.namespaces = weir.namespaces.open(root, fsync=False, max_attributes=options.max_attributes)
        self.keys = KeyStore(self.namespaces.store)
        self.admin = self.keys.create("admin", "admin")[1]
        self.service = Service(self.namespaces, self.keys, options)
        telemetry = Telemetry(weir.Engine().metrics, self.namespaces)
        stores = EventStores(str(root), self.namespaces.store, options)
        self.app = application(self.service, telemetry, stores)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> tuple[int, Any]:
        async def asked() -> tuple[int, Any]:
            transport = httpx2.ASGITransport(app=self.app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://weir") as http:
                sent = {"authorization": f"Bearer {key or self.admin}", **(headers or {})}
                answer = await http.request(method, path, json=body, headers=sent, content=content)
                return answer.status_code, answer.json() if answer.content else None

        return asyncio.run(asked())

    def write(self, name: str, **body: Any) -> Any:
        status, answer = self.ask("POST", f"/v2/namespaces/{name}", body)
        assert status == 200, answer
        return answer

    def values(self, name: str) -> dict[Any, Any]:
        body = {"rank_by": ["id", "asc"], "top_k": 100, "include_attributes": ["v"]}
        status, answer = self.ask("POST", f"/v2/namespaces/{name}/query", body)
        assert status == 200, answer
        return {row["id"]: row["v"] for row in answer["rows"]}


def check_acknowledged_is_durable(root: Root) -> None:
    """Whoever opens the root anew has what was acknowledged, though nobody has flushed or closed anything."""
    root.write("docs", upsert_rows=[{"id": n, "v": n} for n in range(5)])
    root.write("docs", upsert_rows=[{"id": 1, "v": 10}], deletes=[2])
    fresh = weir.namespaces.open(root.root, fsync=False, engine=weir.Engine())
    found = fresh.namespace("docs").get(range(5), ["v"]).to_pylist()
    assert {row["id"]: row["v"] for row in found} == {0: 0, 1: 10, 3: 3, 4: 4}


def check_namespaces_of_others_are_closed(root: Root) -> None:
    """Outside the globs of a key everything is refused, in every dialect, and is in no listing."""
    root.write("mine", upsert_rows=[{"id": 1}])
    root.write("theirs", upsert_rows=[{"id": 1}])
    key = root.keys.create("one", "writer", ["mine"])[1]
    rank = {"rank_by": ["id", "asc"], "top_k": 1}
    for method, path, body in (
        ("POST", "/v2/namespaces/theirs/query", rank),
        ("GET", "/v1/namespaces/theirs/schema", None),
        ("POST", "/v2/namespaces/theirs", {"deletes": [1]}),
        ("POST", "/v2/namespaces/mine-too", {"copy_from_namespace": "theirs"}),
        ("GET", "/v1/namespaces/theirs", None),
        ("POST", "/v1/namespaces/theirs/clone", {"target": "mine", "as_of": "latest"}),
    ):
        assert root.ask(method, path, body, key)[0] == 403, (method, path)
    assert root.ask("GET", "/v1/namespaces", None, key)[1]["namespaces"] == [{"id": "mine"}]


def check_conditions_hold(root: Root) -> None:
    """A document is written over, patched and deleted only where it meets the condition."""
    root.write("docs", upsert_rows=[{"id": 1, "v": 5}, {"id": 2, "v": 5}])
    newer = ["v", "Lt", {"$ref_new": "v"}]
    rows = [{"id": 1, "v": 4}, {"id": 2, "v": 6}]
    root.write("docs", upsert_rows=rows, upsert_condition=newer)
    assert root.values("docs") == {1: 5, 2: 6}
    root.write("docs", patch_rows=[{"id": 1, "v": 0}, {"id": 2, "v": 7}], patch_condition=newer)
    root.write("docs", deletes=[1, 2], delete_condition=["v", "Gt", 100])
    assert root.values("docs") == {1: 5, 2: 7}


def check_cursors_are_signed(root: Root) -> None:
    """A cursor whose place was changed is refused, as is one that another key was given."""
    root.ask("POST", "/v1/namespaces", {"name": "vectors", "dimensions": 1, "distance_metric": "euclidean"})
    vectors = [{"id": str(n), "values": [n]} for n in range(6)]
    root.ask("POST", "/v1/namespaces/vectors/vectors", {"vectors": vectors})
    asked = {"vector": [0], "top_k": 2, "candidate_k": 6}
    path = "/v1/namespaces/vectors/query"
    status, page = root.ask("POST", path, {**asked, "cursor": {"type": "none"}})
    assert status == 200, page
    raw = base64.urlsafe_b64decode(page["next_cursor"])
    forged = base64.urlsafe_b64encode(raw.replace(b", 2, ", b", 4, ")).decode()
    good = {"type": "after", "token": page["next_cursor"]}
    assert [one["id"] for one in root.ask("POST", path, {**asked, "cursor": good})[1]["results"]] == [
        "2",
        "3",
    ]
    bad = {"type": "after", "token": forged}
    assert root.ask("POST", path, {**asked, "cursor": bad})[0] == 400
    other = root.keys.create("other", "reader")[1]
    assert root.ask("POST", path, {**asked, "cursor": good}, other)[0] == 400


CHECKS: dict[str, Callable[[Root], None]] = {
    "acknowledged": check_acknowledged_is_durable,
    "foreign": check_namespaces_of_others_are_closed,
    "conditions": check_conditions_hold,
    "cursors": check_cursors_are_signed,
}


def answers_before_it_writes(patch: pytest.MonkeyPatch) -> None:
    """Writes are acknowledged while they wait in memory."""
    waiting: list[Any] = []

    def later(opened: Any, changes: Any) -> None:
        waiting.append(changes)

    patch.setattr("weir.namespaces.namespace.apply_changes", later)


def looks_at_no_globs(patch: pytest.MonkeyPatch) -> None:
    """A key is good for every namespace."""
    patch.setattr("weir.service.keys.key.Key.may_see", lambda self, name: True)


def looks_at_no_glob_of_a_source(patch: pytest.MonkeyPatch) -> None:
    """Only namespaces that are written are looked at: what is copied is not."""
    held = Service.namespace

    def without(self: Service, call: Any, name: str, *, writes: bool) -> Any:
        return held(self, call, name, writes=True) if writes else self.namespaces.namespace(name)

    patch.setattr(Service, "namespace", without)


def loses_conditions_of_the_table(patch: pytest.MonkeyPatch) -> None:
    """What the table decides by is left out."""
    patch.setattr("weir.namespaces.row_changes.condition_sql", lambda condition, columns: "true")


def loses_conditions_of_patches(patch: pytest.MonkeyPatch) -> None:
    """What a namespace decides by itself is taken to be met."""
    patch.setattr(
        "weir.namespaces.decision.meets",
        lambda condition, present, new, definition: np.ones(present.num_rows, dtype=bool),
    )


def takes_any_signature(patch: pytest.MonkeyPatch) -> None:
    """Cursors are not compared with their signature."""
    patch.setattr("weir.service.zeppelin.cursors.hmac.compare_digest", lambda one, other: True)


def binds_cursors_to_no_key(patch: pytest.MonkeyPatch) -> None:
    """Cursors are good for whoever has them."""
    patch.setattr("weir.service.zeppelin.cursors._bound_to", lambda namespace, key_id, body: namespace)


BUGS: list[tuple[str, Callable[[pytest.MonkeyPatch], None]]] = [
    ("acknowledged", answers_before_it_writes),
    ("foreign", looks_at_no_globs),
    ("foreign", looks_at_no_glob_of_a_source),
    ("conditions", loses_conditions_of_the_table),
    ("conditions", loses_conditions_of_patches),
    ("cursors", takes_any_signature),
    ("cursors", binds_cursors_to_no_key),
]


@pytest.mark.parametrize("check", CHECKS)
def test_the_service_keeps_its_promise(tmp_path: Path, check: str) -> None:
    CHECKS[check](Root(tmp_path))


@pytest.mark.parametrize(("check", "bug"), BUGS, ids=[bug.__name__ for _, bug in BUGS])
def test_a_planted_bug_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    check: str,
    bug: Callable[[pytest.MonkeyPatch], None],
) -> None:
    root = Root(tmp_path)
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        CHECKS[check](root)
