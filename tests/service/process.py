"""A service in a process of its own, on loopback: started, killed and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

_SECONDS = 60


class ServiceProcess:
    """``weir serve`` below a root. Several start beside each other: only its address has to be waited for."""

    def __init__(self, root: Path, *options: str, auth: bool = False) -> None:
        self.root = root
        arguments = [] if auth else ["--no-auth"]
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "weir", "serve", str(root), "--listen", "127.0.0.1:0", "--json"),
                *(*arguments, *options),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @cached_property
    def url(self) -> str:
        """Where it is reached, once it answers."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, error = self.process.communicate(timeout=_SECONDS)
            raise RuntimeError(error)
        told: dict[str, Any] = json.loads(line)
        assert told["event"] == "listening"
        url: str = told["url"]
        return url

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=_SECONDS)

    def stop(self) -> tuple[int, str]:
        """Ask it to end; return how it did, and what it said on standard error."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGTERM)
        _, error = self.process.communicate(timeout=_SECONDS)
        return self.process.returncode, error


def make_key(root: Path, role: str, *options: str) -> str:
    """Make a key with the command line; return its text."""
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "weir", "keys", "create", str(root), "--name", "test", "--role", role),
            *("--json", *options),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=_SECONDS,
    )
    key: str = json.loads(ran.stdout)["key"]
    return key
