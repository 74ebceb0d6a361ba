"""The demo of the service: real texts with vectors, two processes on one root, kills, every answer checked.

The texts are documentation strings of the installed packages. Whatever the service answers, while it is
written to and killed as well as afterwards, is compared with what plain Python and NumPy make of the same
texts.
"""

from __future__ import annotations

import argparse
import base64
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from weir.demo.documentation import Text, Vectors, documentation_strings, vectors_of, words_of
from weir.demo.service_process import Client, ServiceProcess
from weir.namespaces.indexes import ROWS_WORTH_VECTORS
from weir.service.keys.store import KeyStore
from weir.storage.open import open_store

__all__ = ["main", "run_service_demo"]

_NAMESPACES = 3
_BATCH = 100
_DIMENSIONS = 64
_LONG = 200
_SECONDS_TO_INDEX = 60.0
_SCHEMA = {"text": {"type": "string", "full_text_search": {"remove_stopwords": False}}}


class _Checks:
    """How many answers were compared, and which were wrong."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._lock = threading.Lock()

    def same(self, what: str, found: object, wanted: object, detail: str = "") -> None:
        with self._lock:
            self.counts[what] += 1
            if found != wanted:
                self.wrong.append(f"{what} {detail}: {found!s:.100} and not {wanted!s:.100}")


class _Pace:
    """How many documents may be written so far: those that a kill should interrupt wait for it."""

    def __init__(self, written: Callable[[], int]) -> None:
        self.written = written
        self._most = 0
        self._changed = threading.Condition()

    def allow(self, most: int) -> None:
        """Let this many be written, and those whose write has begun."""
        with self._changed:
            self._most = most
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait until more may be written."""
        with self._changed:
            while self.written() >= self._most:
                self._changed.wait(0.05)


class _Documents:
    """The texts of one namespace and their outcome, with which the service is compared.

    A document is deleted if its id is a multiple of 50, else patched if it is one of 7 and the text is long.
    """

    def __init__(self, number: int, texts: Sequence[Text], vectors: Vectors) -> None:
        self.name = f"docs-{number}"
        self.ids = range(number, len(texts), _NAMESPACES)
        self.acknowledged: dict[int, bool] = {}
        self._texts = texts
        self._vectors = vectors

    def row(self, id: int) -> dict[str, Any]:
        text = self._texts[id]
        vector = base64.b64encode(self._vectors[id].astype("<f4").tobytes()).decode()
        columns = {"name": text.name, "package": text.package, "text": text.text, "length": len(text.text)}
        return {"id": id, "vector": vector, **columns}

    def wanted(self, id: int) -> dict[str, Any]:
        """Return the final state of a document, without its vector."""
        row = {name: value for name, value in self.row(id).items() if name != "vector"}
        return {**row, "seen": True if _is_patched(id, row["length"]) else None}

    @property
    def left(self) -> list[int]:
        return [id for id in self.ids if id % 50]


def _is_patched(id: int, length: int) -> bool:
    return id % 7 == 0 and id % 50 != 0 and length >= _LONG


def run_service_demo(root: Path, texts: int = 20_000, kills: int = 4, seed: int = 7) -> list[str]:
    """Run the demo; return which answers were wrong.

    Parameters
    ----------
    root : Path
        Where the namespaces are made.
    texts : int
        How many texts. Default 20,000.
    kills : int
        How often a process is killed. Default 4.
    seed : int
        Decides which documents, and which questions.
    """
    began = time.monotonic()
    given = documentation_strings(texts)
    vectors = vectors_of([one.text for one in given], _DIMENSIONS)
    packages = len({one.package for one in given})
    print(f"{len(given):,} texts of {packages} packages, with vectors, in {time.monotonic() - began:.0f} s")
    root.mkdir(parents=True, exist_ok=True)
    key = KeyStore(open_store(root, fsync=False)).create("demo", "admin")[1]
    log = root.parent / f"{root.name}.log"
    processes = [ServiceProcess(root, log) for _ in range(2)]
    urls = [process.url for process in processes]
    documents = [_Documents(number, given, vectors) for number in range(_NAMESPACES)]
    checks = _Checks()
    try:
        _stream(documents, checks, processes, urls, key, log, kills, random.Random(seed))
        client = Client(urls, key)
        _ask_everything(documents, given, vectors, checks, client, random.Random(seed))
        client.close()
    finally:
        codes = [process.stop() for process in processes]
    checks.same("a process ends in order", codes, [0, 0])
    for what, count in checks.counts.items():
        print(f"{count:7,} x {what}")
    print(f"{time.monotonic() - began:.0f} s in all")
    return checks.wrong


def _stream(
    documents: Sequence[_Documents],
    checks: _Checks,
    processes: list[ServiceProcess],
    urls: list[str],
    key: str,
    log: Path,
    kills: int,
    chance: random.Random,
) -> None:
    """Write everything, and read meanwhile, while processes are killed and others started in their place."""
    began = time.monotonic()
    total = sum(len(one.ids) for one in documents)
    is_over = threading.Event()
    clients = [Client(urls, key) for _ in range(len(documents) + 1)]
    pace = _Pace(lambda: sum(len(one.acknowledged) for one in documents))
    due = [total * number // (kills + 1) for number in range(1, kills + 1)]
    ahead = 2 * _BATCH * len(documents)
    pace.allow(due[0] + ahead if due else total + 1)
    with ThreadPoolExecutor(len(documents) + 1) as threads:
        writing = [
            threads.submit(_write, one, checks, client, pace)
            for one, client in zip(documents, clients[:-1], strict=True)
        ]
        reading = threads.submit(_read, documents, checks, clients[-1], is_over, random.Random(1))
        try:
            for number, met in enumerate(due, start=1):
                while pace.written() < met and not all(one.done() for one in writing):
                    time.sleep(0.01)
                at = chance.randrange(2)
                done = pace.written()
                processes[at].kill()
                urls[at] = urls[1 - at]
                pace.allow(due[number] + ahead if number < kills else total + 1)
                processes[at] = ServiceProcess(root=processes[at].root, log=log)
                urls[at] = processes[at].url
                print(f"killed process {at + 1} after {done:,} documents, and started another one")
            for one in writing:
                one.result()
        finally:
            pace.allow(total + 1)
            is_over.set()
        reading.result()
    retries = sum(client.retries for client in clients)
    for client in clients:
        client.close()
    print(f"{total:,} documents written in {time.monotonic() - began:.0f} s, {retries} requests sent again")


def _write(documents: _Documents, checks: _Checks, client: Client, pace: _Pace) -> None:
    path = f"/v2/namespaces/{documents.name}"
    for begin in range(0, len(documents.ids), _BATCH):
        pace.wait()
        ids = documents.ids[begin : begin + _BATCH]
        rows = [documents.row(id) for id in ids]
        body: dict[str, Any] = {"upsert_rows": rows, "schema": _SCHEMA, "distance_metric": "cosine_distance"}
        answer = client.ask("POST", path, body, {"idempotency-key": f"{documents.name} {begin}"})
        checks.same("documents are written once", answer["rows_upserted"], len(rows))
        seen = [{"id": row["id"], "seen": True} for row in rows if row["id"] % 7 == 0 and row["id"] % 50]
        gone = [id for id in ids if id % 50 == 0]
        body = {"patch_rows": seen, "patch_condition": ["length", "Gte", _LONG], "deletes": gone}
        answer = client.ask("POST", path, body, {"idempotency-key": f"{documents.name} {begin} then"})
        long = [row for row in rows if _is_patched(row["id"], row["length"])]
        told = (answer["rows_patched"], answer.get("rows_deleted", 0))
        checks.same("patches are decided by what is there", told, (len(long), len(gone)))
        documents.acknowledged.update((id, id % 50 != 0) for id in ids)


def _read(
    documents: Sequence[_Documents],
    checks: _Checks,
    client: Client,
    is_over: threading.Event,
    chance: random.Random,
) -> None:
    """Ask for what has been acknowledged: it exists, or was deleted, whichever process was killed."""
    while not is_over.wait(0.02):
        one = chance.choice(documents)
        known = dict(one.acknowledged)
        if not known:
            continue
        ids = chance.sample(sorted(known), min(20, len(known)))
        body = {"rank_by": ["id", "asc"], "top_k": 20, "filters": ["id", "In", ids]}
        answer = client.ask("POST", f"/v2/namespaces/{one.name}/query", body)
        found = [row["id"] for row in answer["rows"]]
        checks.same("what was acknowledged is read", found, sorted(id for id in ids if known[id]))


def _ask_everything(
    documents: Sequence[_Documents],
    texts: Sequence[Text],
    vectors: Vectors,
    checks: _Checks,
    client: Client,
    chance: random.Random,
) -> None:
    recalls: list[float] = []
    for one in documents:

        def ask(body: dict[str, Any], name: str = one.name) -> dict[str, Any]:
            return client.ask("POST", f"/v2/namespaces/{name}/query", body)

        _check_documents(one, vectors, checks, ask)
        _check_numbers(one, texts, checks, ask)
        _check_words(one, texts, checks, ask, chance)
        if len(one.left) >= ROWS_WORTH_VECTORS:
            _wait_for_the_index(checks, ask)
        recalls += _check_nearest(one, vectors, checks, ask, chance)
    recall = float(np.mean(recalls))
    print(f"recall of searches by the index: {recall:.3f}")
    checks.same("recall is at least 0.95", recall >= 0.95, True, f"{recall:.3f}")


_Ask = Callable[[dict[str, Any]], dict[str, Any]]


def _wait_for_the_index(checks: _Checks, ask: _Ask) -> None:
    """Wait until upkeep has indexed all documents, including those written by processes that are gone."""
    until = time.monotonic() + _SECONDS_TO_INDEX
    body = {"rank_by": ["id", "asc"], "top_k": 1}
    left = ask(body)["performance"]["exhaustive_search_count"]
    while left and time.monotonic() < until:
        time.sleep(0.2)
        left = ask(body)["performance"]["exhaustive_search_count"]
    checks.same("upkeep indexes every document", left, 0)


def _check_documents(one: _Documents, vectors: Vectors, checks: _Checks, ask: _Ask) -> None:
    """Compare every document, value by value."""
    wanted = {"include_attributes": True, "vector_encoding": "base64", "top_k": 1000}
    rows: list[dict[str, Any]] = []
    last = -1
    while True:
        filters: list[Any] = ["id", "Gt", last] if last >= 0 else ["id", "Gte", 0]
        page = ask({"rank_by": ["id", "asc"], "filters": filters, **wanted})["rows"]
        if not page:
            break
        rows += page
        last = page[-1]["id"]
    checks.same("every document is there once", [row["id"] for row in rows], one.left)
    for row in rows:
        vector = base64.b64decode(row.pop("vector"))
        checks.same("vectors are as written", vector, vectors[row["id"]].astype("<f4").tobytes())
        checks.same("values are as written", row, one.wanted(row["id"]), f"{one.name}/{row['id']}")


def _check_numbers(one: _Documents, texts: Sequence[Text], checks: _Checks, ask: _Ask) -> None:
    counts = Counter(texts[id].package for id in one.left)
    body = {"aggregate_by": {"n": ["Count"], "sum": ["Sum", "length"]}, "group_by": ["package"]}
    groups = ask({**body, "top_k": 10_000})["aggregation_groups"]
    checks.same("counts by package", {row["package"]: row["n"] for row in groups}, dict(counts))
    total = sum(len(texts[id].text) for id in one.left)
    checks.same("sums by package", sum(row["sum"] for row in groups), total)
    long = sum(len(texts[id].text) >= 1000 for id in one.left)
    filters: list[Any] = ["And", [["length", "Gte", 1000], ["Not", ["package", "Eq", "none of them"]]]]
    found = ask({"aggregate_by": {"n": ["Count"]}, "filters": filters})["aggregations"]
    checks.same("counts by a filter", found, {"n": long})


def _check_words(
    one: _Documents, texts: Sequence[Text], checks: _Checks, ask: _Ask, chance: random.Random
) -> None:
    having: dict[str, set[int]] = {}
    for id in one.left:
        # Words as the index has them too: between letters, digits and underscores nothing is parted here.
        for word in {*texts[id].text.lower().replace("_", " ").split()}:
            if word.isascii() and word.isalpha() and 4 <= len(word) <= 20:
                having.setdefault(word, set()).add(id)
    rare = sorted(word for word, ids in having.items() if 2 <= len(ids) <= 50)
    for word in chance.sample(rare, min(10, len(rare))):
        rows = ask({"rank_by": ["text", "BM25", word], "top_k": 1000, "include_attributes": ["text"]})["rows"]
        found = {row["id"] for row in rows}
        checks.same("a word finds every text that has it", having[word] - found, set(), word)
        without = [row["id"] for row in rows if word not in words_of(row["text"].replace("_", " "))]
        checks.same("a word finds no text without it", without, [], word)
        scores = [row["$dist"] for row in rows]
        checks.same("texts are ranked by their score", scores, sorted(scores, reverse=True), word)


def _check_nearest(
    one: _Documents, vectors: Vectors, checks: _Checks, ask: _Ask, chance: random.Random
) -> list[float]:
    """Compare exact searches with NumPy; return the recall of those by the index."""
    left = np.array(one.left)
    recalls = []
    for id in chance.sample(one.left, min(10, len(left))):
        distances = 1.0 - vectors[left] @ vectors[id]
        best = np.sort(distances)[:10]
        body = {"top_k": len(best)}
        query = vectors[id].tolist()
        exact = [row["$dist"] for row in ask({"rank_by": ["vector", "kNN", query], **body})["rows"]]
        is_same = len(exact) == len(best) and bool(np.allclose(exact, best, atol=1e-4))
        checks.same("exact searches find what NumPy finds", is_same, True, f"{one.name}/{id}")
        found = [row["$dist"] for row in ask({"rank_by": ["vector", "ANN", query], **body})["rows"]]
        recalls.append(float(np.mean(np.array(found) <= best[-1] + 1e-4)) if found else 0.0)
    return recalls


def main() -> None:
    """Run the demo as a program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, help="where the namespaces are made, to be kept")
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=4)
    given = parser.parse_args()
    directory = given.directory or Path(tempfile.mkdtemp(prefix="weir-demo-service-"))
    try:
        wrong = run_service_demo(directory / "root", given.texts, given.kills)
    finally:
        if given.directory is None:
            shutil.rmtree(directory, ignore_errors=True)
    for one in wrong[:20]:
        print(f"WRONG: {one}")
    print(f"verdict: {len(wrong):,} answers are wrong" if wrong else "verdict: every answer is right")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
