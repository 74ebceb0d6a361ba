"""A function in another process: what it returns and raises comes back, and what ends it ends nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter

from weir.errors import CorruptionError, StorageError
from weir.maintenance.verification import isolation
from weir.maintenance.verification.isolation import isolated


@pytest.fixture(autouse=True, scope="module")
def _none_is_left_and_each_is_new() -> Iterator[None]:
    isolation._end_all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isolation, "_python", lambda: [sys.executable, "-c"])
        yield
        isolation._end_all()


def call(function: object, argument: object = None) -> object:
    return isolated(function, argument, what="the file", where="some/place")  # type: ignore[arg-type]


def double(value: int) -> int:
    return 2 * value


def process_id(_: object) -> int:
    return os.getpid()


def fail(message: str) -> None:
    raise CorruptionError(message, where="there", hint="do this")


def fail_like_the_library(_: object) -> None:
    class PanicException(BaseException):
        pass

    raise PanicException("out of range")


def abort(_: object) -> None:
    print("is no answer", flush=True)
    os.write(2, b"[a log line]\nmemory allocation failed\nnote: run with more\n")
    os.abort()


def end_at_once(number: int) -> None:
    os.kill(os.getpid(), number)


def chatter(_: object) -> str:
    print("is no answer")
    sys.stdout.flush()
    os.write(1, b"neither is this")
    return "x" * 1_000_000


def read_lance_file(path: str) -> int:
    return len(LanceFileReader(path).read_all().to_table())


def test_results_and_errors_come_back() -> None:
    assert call(double, 21) == 42
    assert len(str(call(chatter))) == 1_000_000
    with pytest.raises(CorruptionError, match="it is broken") as caught:
        call(fail, "it is broken")
    assert (caught.value.where, caught.value.hint) == ("there", "do this")
    with pytest.raises(RuntimeError, match="out of range"):
        call(fail_like_the_library)


def test_one_process_serves_many() -> None:
    first = call(process_id)
    assert first != os.getpid()
    assert {call(process_id) for _ in range(3)} == {first}


def test_an_abort_is_an_error_and_the_next_call_has_a_new_process() -> None:
    before = call(process_id)
    with pytest.raises(
        CorruptionError, match=r"ends the process that tries \(memory allocation failed\)"
    ) as caught:
        call(abort)
    assert caught.value.where == "some/place"
    assert call(process_id) != before
    assert call(double, 1) == 2


def test_a_process_that_others_end_is_no_damage() -> None:
    with pytest.raises(StorageError, match=f"status -{signal.SIGKILL}"):
        call(end_at_once, signal.SIGKILL)


def test_a_process_that_has_gone_while_idle_is_replaced() -> None:
    process = call(process_id)
    assert isinstance(process, int)
    os.kill(process, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while call(process_id) == process:
        assert time.monotonic() < deadline
    assert call(double, 3) == 6


def test_a_process_does_not_outlive_who_started_it(tmp_path: Path) -> None:
    script = (
        "from tests.maintenance.verification.test_isolation import call, process_id\n"
        "import os; print(call(process_id), flush=True); os._exit(0)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    process = int(ran.stdout)
    deadline = time.monotonic() + 60
    while (
        Path(f"/proc/{process}").exists() and "Z" not in Path(f"/proc/{process}/stat").read_text().split()[2]
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_file_over_which_the_library_aborts(tmp_path: Path) -> None:
    """One byte of a column's name: no error, no panic that could be caught, but the end of the process."""
    path = tmp_path / "file.lance"
    with LanceFileWriter(str(path), pa.schema([("column", pa.int64())])) as writer:
        writer.write_batch(pa.record_batch({"column": [1, 2]}))
    assert call(read_lance_file, str(path)) == 2
    path.write_bytes(path.read_bytes().replace(b"column", b"col\0mn"))
    with pytest.raises(CorruptionError, match=r"ends the process that tries \(called"):
        call(read_lance_file, str(path))
