"""How soon events are visible, told apart from those that wait for Spark to start."""

from __future__ import annotations

from weir.demo.freshness import Freshness


def test_events_that_wait_for_a_driver_to_start_are_counted_by_themselves() -> None:
    freshness = Freshness()
    freshness.begin()
    freshness.note([30.0], {"trigger": 29.0, "commit": 1.0}, 0.5, at_start=True)
    freshness.note([1.0], {"trigger": 0.2, "commit": 0.6}, 0.0, at_start=False)
    freshness.note([2.0], {"trigger": 0.4, "commit": 1.2}, 1.0, at_start=False)
    freshness.begin()
    freshness.note([19.0, 21.0], {"trigger": 18.0, "commit": 2.0}, 0.0, at_start=True)
    freshness.note([2.0], {"trigger": 0.6, "commit": 1.2}, 0.5, at_start=False)
    streamed = freshness.latency()
    assert (streamed.name, streamed.p50) == ("freshness", 2.5)
    assert streamed.p99 < 3.0
    first, again = freshness.at_starts()
    assert (first.name, first.p50) == ("freshness_at_start", 30.5)
    assert (again.name, again.p50) == ("freshness_at_restart", 20.0)
    parts = freshness.parts()
    assert {name: round(seconds, 6) for name, seconds in parts.items()} == {
        "trigger": 0.4,
        "commit": 1.0,
        "reader": 0.5,
    }


def test_a_stream_that_ends_while_spark_starts_has_a_freshness_all_the_same() -> None:
    freshness = Freshness()
    freshness.begin()
    freshness.note([3.0], {"commit": 1.0}, 0.0, at_start=True)
    assert freshness.latency().p50 == 3.0
    assert freshness.parts() == {}
    assert [one.name for one in freshness.at_starts()] == ["freshness_at_start"]
