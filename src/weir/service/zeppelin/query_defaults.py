"""Query defaults: what queries have that do not say, stored for all namespaces of a root."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from weir.errors import InputError, ObjectExistsError, ObjectNotFoundError, PreconditionError
from weir.service.fields import chosen, known_only, whole
from weir.service.openapi import members
from weir.service.refusals import Refusal
from weir.service.zeppelin.shapes import Config
from weir.storage.interface import ObjectStore

__all__ = ["QueryDefaults"]

_PATH = "config/query.json"
_DEFAULTS = {
    "default_nprobe": 32,
    "default_top_k": 10,
    "rerank_coalesce_gap_bytes": 1_048_576,
    "bm25_max_full_scan_vectors": 100_000,
    "bm25_max_full_scan_clusters": 500,
}
_MOST = {"default_top_k": 10_000, "default_nprobe": 256}
_PROFILES = {"low_latency": 131_072, "balanced": 1_048_576, "low_cost": 4_194_304}
_SECONDS_KNOWN = 2.0
_ATTEMPTS = 64


class QueryDefaults:
    """The query defaults of a root.

    Parameters
    ----------
    store : ObjectStore
        The root.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._known: tuple[float, dict[str, Any]] = (0.0, dict(_DEFAULTS))

    def values(self) -> dict[str, Any]:
        """Return them, as they were a moment ago."""
        seen, values = self._known
        if time.monotonic() - seen > _SECONDS_KNOWN:
            try:
                values = _stored(self._store.get(_PATH))
            except ObjectNotFoundError:
                values = dict(_DEFAULTS)
            self._known = (time.monotonic(), values)
        return values

    def change(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the stored defaults by those that a request makes of them; return them.

        Raises
        ------
        InputError
            If the request is not valid.
        Refusal
            If others changed them during every attempt.
        """
        known_only(body, members(Config), "the configuration of queries")
        for _ in range(_ATTEMPTS):
            with suppress(ObjectExistsError, PreconditionError):
                try:
                    stored, version = self._store.get_with_version(_PATH)
                except ObjectNotFoundError:
                    values = _changed(_DEFAULTS, body)
                    self._store.put_if_absent(_PATH, json.dumps(values).encode())
                else:
                    values = _changed(_stored(stored), body)
                    self._store.compare_and_swap(_PATH, json.dumps(values).encode(), version)
                self._known = (0.0, values)
                return values
        raise Refusal(503, "conflict", "others changed the query defaults during every attempt", 1)


def _stored(data: Any) -> dict[str, Any]:
    return {**_DEFAULTS, **json.loads(bytes(memoryview(data)))}


def _changed(values: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    before = {**values}
    profile = body.get("cost_latency_profile")
    if profile is not None:
        if body.get("rerank_coalesce_gap_bytes") is not None:
            raise InputError("rerank_coalesce_gap_bytes and cost_latency_profile are not said together")
        before["rerank_coalesce_gap_bytes"] = _PROFILES[chosen(profile, _PROFILES, "cost_latency_profile")]
    return {
        name: whole(body, name, int(name.startswith("default")), _MOST.get(name, 2**40), before[name])
        for name in _DEFAULTS
    }
