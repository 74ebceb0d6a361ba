"""What every test shares: how Hypothesis searches, and an environment without surprises.

``HYPOTHESIS_PROFILE=long`` searches longer, as ``make test-long`` does, and ``thorough`` longer still;
``--hypothesis-profile`` does the same.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import cases, compiled, forked_program

# Timings on shared machines say nothing about the code, so no example has a deadline.
_ANY_MACHINE = (HealthCheck.too_slow,)

# The same examples in every run, so that a change is judged by what it changes: few in the short run.
for _profile, _examples in (("ci", 20), ("long", 100)):
    settings.register_profile(
        _profile,
        max_examples=_examples,
        stateful_step_count=30,
        derandomize=True,
        deadline=None,
        print_blob=True,
        suppress_health_check=_ANY_MACHINE,
    )
# New examples in every run; failures are remembered in .hypothesis.
settings.register_profile(
    "thorough",
    max_examples=1000,
    stateful_step_count=100,
    deadline=None,
    print_blob=True,
    suppress_health_check=_ANY_MACHINE,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Settings and credentials of whoever runs the tests stay out of them.
for _name in list(os.environ):
    if _name.startswith(("WEIR_", "AWS_", "AZURE_", "GOOGLE_")) and _name != "WEIR_MAINTENANCE":
        del os.environ[_name]


_COLLECTED = pytest.StashKey[frozenset[str]]()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile what the processes import that the tests are about to be spread over."""
    if "PYTEST_XDIST_WORKER" not in os.environ and session.config.getoption("numprocesses", None):
        compiled.compile_all(session.config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is more of the same as long, before anybody leaves out what is long."""
    config.stash[_COLLECTED] = frozenset(item.nodeid for item in items)
    cases.mark_long(items)


def pytest_collection() -> None:
    """Look for no garbage while tests are collected: nearly everything stays."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Take what was collected out of the sight of the garbage collector: it stays until the end.

    With thousands of tests, a search among all that they have imported takes half a second, and what
    asks for one would mostly wait for that.
    """
    gc.enable()
    gc.collect()
    gc.freeze()
    if not any(item.get_closest_marker("spark") for item in session.items):
        _hide_pandas_from_processes()


def _hide_pandas_from_processes() -> None:
    """Let processes that tests start have no pandas.

    Weir does not need it, but Arrow imports it wherever it is: for a fourth of a second, of a whole one.
    """
    paths = [str(Path(__file__).parent / "without_pandas"), os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


@pytest.fixture(scope="session")
def collected(request: pytest.FixtureRequest) -> frozenset[str]:
    """The tests that were collected, also those that are left out."""
    return request.config.stash[_COLLECTED]


@pytest.fixture(scope="session")
def weir_python() -> list[str]:
    """What stands for ``python -c`` in a command, where Weir has been imported: see its module."""
    return forked_program.weir_python()


@pytest.fixture(scope="session", autouse=True)
def _doubtful_files_are_read_by_forks() -> None:
    """Let a process that reads what may abort it have imported Weir already, but for tests of just that."""
    from weir.maintenance.verification import isolation

    isolation._python = forked_program.weir_python


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """Yield a directory on a block device, which that of the tests may not be."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        if not os.major(os.stat(directory).st_dev):
            pytest.skip("/var/tmp is on no block device")
        yield Path(directory)
