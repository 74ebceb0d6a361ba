from __future__ import annotations

from datetime import timedelta

import pytest

from weir.engine.durations import parse_duration
from weir.errors import OptionError
from weir.maintenance.garbage.garbage import DEFAULT_HORIZON


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("15m", DEFAULT_HORIZON),
        ("0s", timedelta(0)),
        ("1.5h", timedelta(minutes=90)),
        ("1d 12h", timedelta(hours=36)),
        ("1h30m15s", timedelta(hours=1, minutes=30, seconds=15)),
    ],
)
def test_a_length_of_time_has_a_unit(text: str, length: timedelta) -> None:
    assert parse_duration(text, "horizon") == length


@pytest.mark.parametrize("text", ["", "15", "m", "-1h", "1 week", "1h x", "٣s", "1e9d", f"{10**12}d"])
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_duration(text, "horizon")
    assert caught.value.where == "horizon"
