"""Verification of a whole table: every invariant that storage can show.

One plan, tasks that can run anywhere, one report. The table as a whole is checked first, then every shard in
a separate task, then every listed generation, the indexes of the base table, and its rows.

Other processes may write, merge and collect meanwhile. So findings are checked again, and only persistent
ones are reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from weir.base.table import BaseTable
from weir.engine.logs import get_logger
from weir.engine.runner import Runner
from weir.maintenance.verification.base_files import BaseFilesCheck, check_base_files
from weir.maintenance.verification.base_index import base_index_checks, check_base_index
from weir.maintenance.verification.facts import TableFacts
from weir.maintenance.verification.finding import Finding, Severity
from weir.maintenance.verification.generation import GenerationCheck, check_generation
from weir.maintenance.verification.shard import ShardCheck, ShardResult, check_shard
from weir.maintenance.verification.twins import TWIN_CHECKS, check_twins
from weir.maintenance.verification.whole import BaseRowsCheck, check_base_rows, check_whole
from weir.notebook import ShownAsTable

__all__ = ["Finding", "Severity", "VerifyReport", "verify_table"]

_log = get_logger(__name__)
_LOOK_AGAIN_AFTER_SECONDS = (0.1, 0.5)


@dataclass(frozen=True, slots=True)
class VerifyReport(ShownAsTable):
    """What a check of a table found.

    Parameters
    ----------
    findings : tuple of Finding
        The problems found, by location; empty for a healthy table.
    base_version : int
        Version of the base table that was checked.
    shards, generations, entries : int
        How many shards, generations and log entries were checked.
    """

    findings: tuple[Finding, ...]
    base_version: int
    shards: int
    generations: int
    entries: int

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that put rows at risk."""
        return tuple(one for one in self.findings if one.severity is Severity.ERROR)

    @property
    def passed(self) -> bool:
        """Whether there are no errors; there may be warnings."""
        return not self.errors

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can hold."""
        return {
            "passed": self.passed,
            "base_version": self.base_version,
            "shards": self.shards,
            "generations": self.generations,
            "entries": self.entries,
            "findings": [one.to_dict() for one in self.findings],
        }


def verify_table(
    base: BaseTable,
    runner: Runner,
    *,
    base_rows: bool = True,
    on_progress: Callable[[int, int], None] | None = None,
) -> VerifyReport:
    """Check every invariant of a table that storage can show. Writes nothing.

    Parameters
    ----------
    base : BaseTable
        The base table at any version.
    runner : Runner
        Executes one task per shard, one per generation, one per segment of an index, and one for the rows of
        the base table.
    base_rows : bool
        Whether to read the rows of the base table too. Their keys are held in memory.
    on_progress : callable, optional
        Called with (tasks done, tasks in all), as far as known.

    Returns
    -------
    VerifyReport
        What was found, and found again.
    """
    report = on_progress or (lambda done, total: None)
    first = _look(base.latest(), runner, base_rows=base_rows, on_progress=report)
    findings = first.findings
    for seconds in _LOOK_AGAIN_AFTER_SECONDS:
        if not findings:
            break
        time.sleep(seconds)
        again = _look(
            base.latest(),
            runner,
            base_rows=base_rows and any(one.check.startswith(("base.", "base_index.")) for one in findings),
            only=_shards_of(findings),
            on_progress=lambda done, total: None,
        )
        seen = {_subject(one) for one in findings}
        findings = tuple(one for one in again.findings if _subject(one) in seen)
    ordered = tuple(sorted(findings, key=lambda one: (one.severity.value, one.where, one.check)))
    found = VerifyReport(ordered, first.base_version, first.shards, first.generations, first.entries)
    _log.info(
        "table.verified",
        version=found.base_version,
        shards=found.shards,
        errors=len(found.errors),
        warnings=len(ordered) - len(found.errors),
    )
    return found


def _shards_of(findings: Collection[Finding]) -> Collection[UUID] | None:
    """Return which shards to check again; None for all, if a finding concerns two."""
    if any(one.check in TWIN_CHECKS for one in findings):
        return None
    return {one.shard_id for one in findings if one.shard_id is not None}


def _subject(finding: Finding) -> tuple[str, str]:
    """Return the subject of a finding. The exact problem there may change as the table changes."""
    return finding.check, finding.where


def _look(
    base: BaseTable,
    runner: Runner,
    *,
    base_rows: bool,
    only: Collection[UUID] | None = None,
    on_progress: Callable[[int, int], None],
) -> VerifyReport:
    """Look at a table once; with ``only``, at these of its shards."""
    whole = check_whole(base)
    facts = TableFacts.of(base)
    shards = [ShardCheck(facts, one) for one in whole.shards if only is None or one.shard_id in only]
    findings = list(whole.findings)
    # A missing file cannot be read.
    base_rows = base_rows and all(one.check != "base.torn" for one in findings)
    results: list[ShardResult] = []
    for result in runner.run(check_shard, shards):
        results.append(result)
        findings += result.findings
        on_progress(len(results), len(shards))
    if len(shards) > 1 or only is None:
        findings += check_twins(base, [result.manifest for result in results])
    generations = [
        GenerationCheck(facts, result.manifest, flushed)
        for result in results
        if result.manifest is not None
        for flushed in result.generations
    ]
    indexes = base_index_checks(base, rows=base_rows)
    total = len(shards) + len(generations) + len(indexes) + base_rows
    done = len(shards)
    for found in runner.run(check_generation, generations):
        done += 1
        findings += found
        on_progress(done, total)
    for found in runner.run(check_base_index, indexes):
        done += 1
        findings += found
        on_progress(done, total)
    if base_rows:
        for found in runner.run(check_base_files, [BaseFilesCheck(base)]):
            findings += found
        for found in runner.run(check_base_rows, [BaseRowsCheck(base)]):
            findings += found
        on_progress(total, total)
    entries = sum(result.entries for result in results)
    return VerifyReport(tuple(findings), base.version, len(shards), len(generations), entries)
