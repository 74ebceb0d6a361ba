"""The log of kept answers says what a dict would, whoever wrote it and whatever tore its files."""

from __future__ import annotations

import hashlib
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weir.errors import ConflictError, StorageError
from weir.service.answer_index import AnswerIndex, lines_of, number_of
from weir.service.answer_log import AnswerLog
from weir.service.expiry import KEPT_SECONDS, remove_expired
from weir.service.kept_answers import AnswerObjects, KeptAnswers
from weir.storage.local import LocalStore

MANY = 1 << 20


def key(number: int) -> str:
    """Return the key of a request."""
    return hashlib.sha256(b"%d" % number).hexdigest()


def every(_: object) -> bool:
    return True


def answers(found: dict[str, Any]) -> dict[str, Any]:
    """Return notes without their time."""
    return {key: {name: value for name, value in note.items() if name != "at"} for key, note in found.items()}


def test_an_index_is_a_dict() -> None:
    draw = np.random.default_rng(3)
    index, model = AnswerIndex(), dict[int, int]()
    for place in range(60):
        numbers = draw.integers(0, 20_000, 400).astype(np.uint64) << np.uint64(49)
        begins = np.arange(place * 1000, place * 1000 + len(numbers))
        if place % 2:
            index.add(numbers, begins)
        else:
            index.add(numbers.tolist(), begins.tolist())
        model.update(zip(numbers.tolist(), begins.tolist(), strict=True))
        asked = [*numbers[:5].tolist(), *range(1 << 49, 9 << 49, 1 << 49), 1, (1 << 64) - 1]
        assert index.find(asked) == {one: model[one] for one in asked if one in model}
    assert len(index._numbers) > 10_000  # most of it is folded


def test_lines_are_found_wherever_a_block_ends() -> None:
    lines = [key(number).encode() + b" " + b"x" * (number % 7) + b"\n" for number in range(20)]
    whole = b"".join(lines)
    for end in range(len(whole) + 1):
        numbers, begins, used = lines_of(whole[:end])
        count = len(numbers)
        assert used == sum(map(len, lines[:count])) <= end
        assert used + len(lines[count]) > end if count < len(lines) else used == end
        assert numbers.tolist() == [number_of(key(number)) for number in range(count)]
        assert begins.tolist() == [sum(map(len, lines[:at])) for at in range(count)]


def test_logs_of_several_processes_are_one_dict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.service.answer_log._BLOCK_BYTES", 700)
    monkeypatch.setattr("weir.service.answer_log._NOTE_BYTES", 90)
    draw = random.Random(5)
    store = LocalStore(tmp_path, fsync=False)
    logs = [AnswerLog(store, "idempotency/docs", MANY) for _ in range(3)]
    model: dict[str, Any] = {}
    for step in range(300):
        at = draw.randrange(len(logs))
        if draw.random() < 0.1:
            logs[at] = AnswerLog(store, "idempotency/docs", MANY)  # it has ended, and another begins
        chosen = [key(draw.randint(0, 99)) for _ in range(draw.randint(1, 8))]
        notes = {
            one: {
                "body": "of it",
                "done": True,
                "answer": {"upserted": step, "ids": ["x" * draw.randint(0, 300)]},
            }
            for one in chosen
        }
        logs[at].keep(notes, synced=draw.random() < 0.2)
        model.update(notes)
        asked = [key(draw.randint(0, 120)) for _ in range(12)]
        found = answers(draw.choice(logs).find(asked, every))
        assert found == {one: model[one] for one in asked if one in model}


def test_a_late_note_of_a_write_that_may_not_be_done_changes_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, fsync=False)
    stopped, other = (AnswerLog(store, "kept", MANY) for _ in range(2))
    other.keep({key(1): {"body": "of it", "done": True, "table": "a"}}, synced=False)
    stopped.keep({key(1): {"body": "of it", "done": False, "table": "a"}}, synced=True)
    for log in (stopped, other, AnswerLog(store, "kept", MANY)):
        assert answers(log.find([key(1)], every)) == {key(1): {"body": "of it", "done": True, "table": "a"}}
    # To a table made anew the key is new.
    other.keep({key(1): {"body": "of it", "done": False, "table": "b"}}, synced=False)
    found = stopped.find([key(1)], lambda note: note["table"] == "b")
    assert answers(found) == {key(1): {"body": "of it", "done": False, "table": "b"}}


def test_nor_does_it_as_an_object(tmp_path: Path) -> None:
    answers_of_both = AnswerObjects(LocalStore(tmp_path, fsync=False), "kept")
    undone, done = ({"body": "of it", "done": done, "table": "a"} for done in (False, True))
    for note in (undone, undone, done):
        answers_of_both.keep({key(1): note}, synced=True)
        assert answers_of_both.find([key(1)], every) == {key(1): note}
    with pytest.raises(ConflictError):
        answers_of_both.keep({key(1): undone}, synced=True)
    assert answers_of_both.find([key(1)], every) == {key(1): done}
    # To a table made anew the key is new.
    anew = {**undone, "table": "b"}
    answers_of_both.keep({key(1): anew}, synced=True)
    assert answers_of_both.find([key(1)], every) == {key(1): anew}


def test_a_file_that_a_kill_has_torn_ends_before_what_is_torn(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, fsync=False)
    AnswerLog(store, "kept", MANY).keep(
        {key(number): {"body": "of it", "done": True} for number in range(5)}, synced=False
    )
    [path] = (tmp_path / "kept").iterdir()
    path.write_bytes(path.read_bytes()[:-3])
    log = AnswerLog(store, "kept", MANY)
    assert answers(log.find([*map(key, range(5))], every)) == {
        key(number): {"body": "of it", "done": True} for number in range(4)
    }
    log.keep({key(4): {"body": "of it", "done": False}}, synced=False)
    assert len([*(tmp_path / "kept").iterdir()]) == 2
    assert answers(log.find([key(4)], every)) == {key(4): {"body": "of it", "done": False}}


def test_after_a_failed_append_a_log_goes_on_in_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path, fsync=False)
    log = AnswerLog(store, "kept", MANY)
    log.keep({key(1): {"body": "of it", "done": True}}, synced=False)

    def torn(path: str, data: bytes, *, synced: bool) -> int:
        LocalStore.append(store, path, data[: len(data) // 2], synced=synced)
        raise StorageError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(store, "append", torn)
        with pytest.raises(StorageError):
            log.keep({key(2): {"body": "of it", "done": True}}, synced=False)
    log.keep({key(3): {"body": "of it", "done": True}}, synced=False)
    for one in (log, AnswerLog(store, "kept", MANY)):
        assert {*one.find([*map(key, range(5))], every)} == {key(1), key(3)}


def test_every_key_is_told_why_the_files_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, error = LocalStore(tmp_path, fsync=False), StorageError("the disk is gone")

    def fails(_: str) -> object:
        raise error

    monkeypatch.setattr(store, "list", fails)
    found = AnswerLog(store, "kept", MANY).find([key(1), key(2)], every)
    assert found == {key(1): error, key(2): error}


def test_files_of_a_day_ago_go_and_their_keys_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path, fsync=False)
    log, now = AnswerLog(store, "idempotency/docs", MANY), time.time_ns()
    for hour in range(4):
        monkeypatch.setattr(
            "weir.service.answer_log.time.time_ns", lambda at=hour: now + at * 3_600_000_000_000
        )
        log.keep({key(hour): {"body": "of it", "done": True}}, synced=False)
    assert len([*(tmp_path / "idempotency/docs").iterdir()]) == 4
    assert {*log.find([*map(key, range(5))], every)} == {*map(key, range(4))}
    monkeypatch.undo()
    assert remove_expired(store, time.time() + KEPT_SECONDS["idempotency"] + 60) == 4
    assert log.find([*map(key, range(5))], every) == {}
    assert len(log) == 0


def test_keys_in_memory_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.service.kept_answers._MOST_KEYS", 100)
    monkeypatch.setattr("weir.service.kept_answers._USES_BETWEEN_COUNTS", 1)
    store = LocalStore(tmp_path, fsync=False)
    kept = KeptAnswers(store)
    for number in range(10):
        kept.below(f"kept/{number}").keep(
            {key(at): {"body": "of it", "done": number} for at in range(30)}, synced=False
        )
    assert sum(len(log) for log in kept._logs.values()) <= 100 + 30
    # What is not in memory is read again.
    for number in range(10):
        assert answers(kept.below(f"kept/{number}").find([key(7)], every)) == {
            key(7): {"body": "of it", "done": number}
        }
    for number in range(8):
        kept.below("kept/one").keep(
            {key(30 * number + at): {"body": "of it", "done": True} for at in range(30)}, synced=False
        )
        kept = KeptAnswers(store)  # another file each
    one = kept.below("kept/one")
    one.find([key(0)], every)
    assert isinstance(one, AnswerLog)
    assert len(one) <= 100
