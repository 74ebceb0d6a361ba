"""Namespaces served by two processes against a dict, through writes of every kind, upkeep and kills."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import turbopuffer
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.service.process import ServiceProcess

IDS = st.integers(0, 7)
VALUES = st.integers(-2, 2)
WHO = st.integers(0, 1)
_numbers = itertools.count()


class Processes:
    """Two processes on one root, each with a client that waits while an owner is replaced."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._processes = [self._started() for _ in range(2)]
        self._clients: list[Any] = [self._client(process) for process in self._processes]

    def _started(self) -> ServiceProcess:
        return ServiceProcess(self._root, "--no-fsync", "--compaction-interval", "1s")

    def _client(self, process: ServiceProcess) -> Any:
        return turbopuffer.Turbopuffer(api_key="none", base_url=process.url, max_retries=40)

    def namespace(self, who: int, name: str) -> Any:
        return self._clients[who].namespace(name)

    def kill(self, who: int) -> None:
        """Kill one of them, and have another one take its place."""
        self._processes[who].kill()
        self._clients[who].close()
        self._processes[who] = self._started()
        self._clients[who] = self._client(self._processes[who])

    def stop(self) -> None:
        for client in self._clients:
            client.close()
        for process in self._processes:
            code, error = process.stop()
            assert code == 0, error


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    running = Processes(tmp_path_factory.mktemp("machine"))
    yield running
    running.stop()


class Machine(RuleBasedStateMachine):
    """Documents by id, as they ought to be after every request that was answered."""

    processes: Processes

    @initialize()
    def begin(self) -> None:
        self.kills = 0
        self.name = f"machine-{next(_numbers)}"
        self.documents: dict[int, dict[str, Any]] = {}
        self.write(0, upsert_rows=[{"id": 7, "v": 0}])
        self.documents[7] = {"v": 0, "w": None}

    def write(self, who: int, **body: Any) -> Any:
        # Whether a request that was cut off has been done shows by its key.
        key = f"{self.name} {next(_numbers)}"
        namespace = self.processes.namespace(who, self.name)
        return namespace.write(**body, extra_headers={"Idempotency-Key": key})

    @rule(who=WHO, values=st.dictionaries(IDS, VALUES, min_size=1, max_size=4))
    def upsert(self, who: int, values: dict[int, int]) -> None:
        answer = self.write(who, upsert_rows=[{"id": id, "v": value} for id, value in values.items()])
        assert answer.rows_upserted == len(values)
        self.documents.update((id, {"v": value, "w": None}) for id, value in values.items())

    @rule(who=WHO, values=st.dictionaries(IDS, VALUES, min_size=1, max_size=4))
    def upsert_greater(self, who: int, values: dict[int, int]) -> None:
        rows = [{"id": id, "v": value} for id, value in values.items()]
        newer = ("v", "Lt", {"$ref_new": "v"})
        answer = self.write(who, upsert_rows=rows, upsert_condition=newer)
        taken = {
            id: value
            for id, value in values.items()
            if id not in self.documents or self.documents[id]["v"] < value
        }
        assert answer.rows_upserted == len(taken)
        self.documents.update((id, {"v": value, "w": None}) for id, value in taken.items())

    @rule(who=WHO, ids=st.sets(IDS, min_size=1, max_size=4), value=VALUES)
    def patch(self, who: int, ids: set[int], value: int) -> None:
        answer = self.write(who, patch_rows=[{"id": id, "w": value} for id in sorted(ids)])
        there = ids & set(self.documents)
        assert answer.rows_patched == len(there)
        for id in there:
            self.documents[id]["w"] = value

    @rule(who=WHO, ids=st.sets(IDS, min_size=1, max_size=3))
    def delete(self, who: int, ids: set[int]) -> None:
        self.write(who, deletes=sorted(ids))
        for id in ids:
            self.documents.pop(id, None)

    @rule(who=WHO, value=VALUES, w=VALUES)
    def patch_by_filter(self, who: int, value: int, w: int) -> None:
        patch = {"filters": ("v", "Gt", value), "patch": {"w": w}}
        answer = self.write(who, patch_by_filter=patch)
        there = [one for one in self.documents.values() if one["v"] > value]
        assert answer.rows_patched == len(there)
        for one in there:
            one["w"] = w

    @rule(who=WHO, value=VALUES)
    def delete_by_filter(self, who: int, value: int) -> None:
        answer = self.write(who, delete_by_filter=("And", [("v", "Eq", value), ("w", "NotEq", 1)]))
        gone = [id for id, one in self.documents.items() if one["v"] == value and one["w"] != 1]
        assert answer.rows_deleted == len(gone)
        for id in gone:
            del self.documents[id]

    @precondition(lambda self: self.kills < 1)
    @rule(who=WHO)
    def kill(self, who: int) -> None:
        self.kills += 1
        self.processes.kill(who)

    @rule(who=WHO, value=VALUES)
    def read(self, who: int, value: int) -> None:
        namespace = self.processes.namespace(who, self.name)
        rows = namespace.query(rank_by=("id", "asc"), top_k=100, include_attributes=["v", "w"]).rows
        # An attribute that no document has had is missing in all.
        found = {row.id: {"v": row["v"], "w": row["w"]} for row in rows}
        assert found == self.documents
        few = namespace.query(rank_by=("id", "asc"), top_k=100, filters=("v", "Gte", value)).rows
        assert [row.id for row in few] == sorted(
            id for id, one in self.documents.items() if one["v"] >= value
        )

    def teardown(self) -> None:
        if hasattr(self, "documents"):
            self.read(0, 0)
            self.read(1, 1)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_processes_that_are_killed_answer_as_a_dict_does(processes: Processes) -> None:
    Machine.processes = processes
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=4,
            stateful_step_count=16,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
