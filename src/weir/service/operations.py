"""Long-running operations: a record of each, which every process can read.

``operations/{namespace}/{token}.json`` below the root. The process that began an operation records how it
ended; an operation whose process is gone is reported as failed.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from weir.errors import ObjectNotFoundError
from weir.namespaces.names import directory_of
from weir.service.context import Service
from weir.service.refusals import Refusal, refusal_of

__all__ = ["Operations"]

_log = logging.getLogger("weir.service.operations")

_TOKEN = re.compile(r"[0-9a-f]{32}\Z")


class Operations:
    """The operations below a root.

    Parameters
    ----------
    service : Service
        Runs the operations.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._store = service.namespaces.store

    def begin(self, namespace: str, work: Callable[[], Mapping[str, Any]]) -> str:
        """Begin an operation; return the token for querying it."""
        token = secrets.token_hex(16)
        owners = self._service.owners
        record = {
            "status": "running",
            "start_time": _now(),
            "process": "" if owners is None else owners.members.here.id,
        }
        self._note(namespace, token, record)

        def run() -> None:
            try:
                result: dict[str, Any] = {"success": dict(work())}
            except Exception as error:  # whoever asks is told of a failure too: there is nobody else to tell
                refusal = refusal_of(error)
                if refusal is None:
                    _log.exception("operation failed", extra={"event_fields": {"namespace": namespace}})
                    refusal = Refusal(500, "internal", "the service failed")
                result = _failed(refusal.status, refusal.message)
            self._note(namespace, token, _finished(record, result))

        self._service.later(run)
        return token

    def read(self, namespace: str, token: str) -> dict[str, Any]:
        """Return the state of an operation.

        Raises
        ------
        Refusal
            404 if it does not exist.
        """
        try:
            if not _TOKEN.match(token):
                raise ObjectNotFoundError("no token")
            record: dict[str, Any] = json.loads(bytes(memoryview(self._store.get(_path(namespace, token)))))
        except ObjectNotFoundError as error:
            raise Refusal(404, "operation_not_found", "there is no such operation") from error
        process = record.pop("process", "")
        owners = self._service.owners
        if record["status"] == "finished" or owners is None or not process:
            return record
        if any(member.id == process for member in owners.members.live()):
            return record
        return _finished(record, _failed(503, "the process that ran the operation ended"))

    def _note(self, namespace: str, token: str, record: Mapping[str, Any]) -> None:
        self._store.put(_path(namespace, token), json.dumps(record).encode())


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _finished(record: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in record.items() if name != "process"}
    return {**kept, "status": "finished", "finish_time": _now(), "result": result}


def _failed(status: int, message: str) -> dict[str, Any]:
    return {"error": {"status_code": status, "detail": {"status": "error", "error": message}}}


def _path(namespace: str, token: str) -> str:
    return f"operations/{directory_of(namespace)}/{token}.json"
