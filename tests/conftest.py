"""What every test shares: how Hypothesis searches, and an environment without surprises.

``HYPOTHESIS_PROFILE=thorough`` searches longer; ``--hypothesis-profile`` does the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.forked_program import forked_python

# Timings on shared machines say nothing about the code, so no example has a deadline.
_ANY_MACHINE = (HealthCheck.too_slow,)

# The same examples in every run, so that a change is judged by what it changes.
settings.register_profile(
    "ci",
    max_examples=50,
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
    if _name.startswith(("WEIR_", "AWS_", "AZURE_", "GOOGLE_")):
        del os.environ[_name]


@pytest.fixture(scope="session")
def weir_python() -> Iterator[list[str]]:
    """What stands for ``python -c`` in a command, where Weir has been imported: see its module."""
    with forked_python() as command:
        yield command
