"""A service process that the demo starts and kills, and a client that fails over to another one."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Client", "ServiceProcess"]

_SECONDS = 90.0


class ServiceProcess:
    """``weir serve`` on a root, at its own port.

    Parameters
    ----------
    root : Path
        The root.
    log : Path
        Its standard error is appended here.
    """

    def __init__(self, root: Path, log: Path) -> None:
        command = [sys.executable, "-m", "weir", "serve", str(root), "--listen", "127.0.0.1:0"]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [*command, "--compaction-interval", "5s", "--json"],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.root = root
        self._log = log
        self._url = ""

    @property
    def url(self) -> str:
        """Where it is reached, once it answers."""
        if not self._url:
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
            if not line:
                raise SystemExit(f"a process of the service did not start: see {self._log}")
            self._url = json.loads(line)["url"]
        return self._url

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def stop(self) -> int:
        """Ask it to end; return its exit code."""
        self._process.terminate()
        code = self._process.wait(timeout=_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


class Client:
    """Asks processes of a service over its own connections, and tries another one if one does not answer.

    Parameters
    ----------
    urls : sequence of str
        Their addresses. May be changed from outside; the next request uses the change.
    key : str
        Who asks.
    """

    def __init__(self, urls: Sequence[str], key: str) -> None:
        self.urls = urls
        self.retries = 0
        self._key = key
        self._turn = 0
        self._open: dict[str, http.client.HTTPConnection] = {}

    def ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Return the answer in JSON, by whichever process gives one first.

        Raises
        ------
        SystemExit
            If the request is refused permanently, or no process answers.
        """
        content = None if body is None else json.dumps(body).encode()
        until = time.monotonic() + _SECONDS
        told = "nobody answered"
        while time.monotonic() < until:
            self._turn += 1
            url = self.urls[self._turn % len(self.urls)]
            try:
                status, raw = self._once(url, method, path, content, headers or {})
            except (OSError, http.client.HTTPException) as error:
                connection = self._open.pop(url, None)
                if connection is not None:
                    connection.close()
                told = str(error)
            else:
                if status < 300:
                    answer: dict[str, Any] = json.loads(raw) if raw else {}
                    return answer
                told = f"{status}: {raw.decode(errors='replace'):.300}"
                if status not in (429, 503):
                    break
            self.retries += 1
            time.sleep(0.1)
        raise SystemExit(f"{method} {path} was not answered: {told}")

    def _once(
        self, url: str, method: str, path: str, content: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        connection = self._open.get(url)
        if connection is None:
            parts = urlsplit(url)
            connection = self._open[url] = http.client.HTTPConnection(
                parts.hostname or "", parts.port, timeout=60
            )
        sent = {"authorization": f"Bearer {self._key}", "content-type": "application/json", **headers}
        connection.request(method, path, content, sent)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def close(self) -> None:
        """Close the connections."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()
