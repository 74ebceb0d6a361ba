"""The verdict finds what is planted: a judge that cannot convict proves nothing."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from tests.demo.conftest import replay

from weir.demo.events import CANCELLED, FlightEvents
from weir.demo.expected import ExpectedFlights
from weir.demo.flights import FLIGHT_SCHEMA
from weir.demo.verdict import Verdict, compare
from weir.table.table import Table

_VICTIM = "2013-01-01/UA1545/EWR"


def _judge(table: Table, expected: ExpectedFlights) -> Verdict:
    return compare("the table", table.scan().to_table(), expected.rows)


def test_a_table_that_is_right_is_found_so(full_table: Table, expected: ExpectedFlights) -> None:
    verdict = _judge(full_table, expected)
    assert verdict.identical
    assert verdict.rows == verdict.expected_rows == len(expected.rows)
    assert "all as computed from the CSV" in verdict.describe()


def test_a_missing_row_is_found(full_table: Table, expected: ExpectedFlights) -> None:
    with full_table.writer() as writer:
        writer.delete([_VICTIM])
    verdict = _judge(full_table, expected)
    assert [str(one) for one in verdict.differences] == [f"missing row {_VICTIM}"]
    assert "1 DIFFERENCE (" in verdict.describe()


def test_a_row_that_should_be_deleted_is_found(
    full_table: Table, events: FlightEvents, expected: ExpectedFlights
) -> None:
    cancelled = int(events.flight[events.kind == CANCELLED][0])
    key = events.facts.column("id")[cancelled].as_py()
    with full_table.writer() as writer:
        writer.upsert([{"id": key, "status": "scheduled"}])
    assert [str(one) for one in _judge(full_table, expected).differences] == [f"unexpected row {key}"]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", [name for name in FLIGHT_SCHEMA.names if name != "id"])
def test_a_wrong_value_is_found_in_every_column(
    full_table: Table, expected: ExpectedFlights, name: str
) -> None:
    row = full_table.get([_VICTIM]).to_pylist()[0]
    row[name] = None
    with full_table.writer() as writer:
        writer.upsert([row])
    (difference,) = _judge(full_table, expected).differences
    assert (difference.kind, difference.id) == ("value", _VICTIM)
    assert f"{name} is None instead of" in difference.detail


def test_a_doubled_row_is_found(full_table: Table, expected: ExpectedFlights) -> None:
    while full_table.maintenance.merge().generations:
        pass
    lance.write_dataset(
        full_table.get([_VICTIM]).cast(lance.dataset(full_table.uri).schema), full_table.uri, mode="append"
    )
    base = lance.dataset(full_table.uri).to_table()
    assert [str(one) for one in compare("base", base, expected.rows).differences] == [
        f"doubled row {_VICTIM}"
    ]


def test_an_older_state_is_found(empty_table: Table, events: FlightEvents, expected: ExpectedFlights) -> None:
    replay(empty_table, events, events.num_batches - 1)
    last = events.batch(events.num_batches - 1)
    differing = {one.id for one in _judge(empty_table, expected).differences}
    assert differing == {*last.upserts.column("id").to_pylist(), *last.deletes.to_pylist()}


def test_other_columns_are_a_difference(expected: ExpectedFlights) -> None:
    table = pa.table({"id": list(expected.rows)})
    assert not compare("the table", table, expected.rows).identical


def test_many_differences_are_counted_and_a_few_are_shown(expected: ExpectedFlights) -> None:
    verdict = compare("the table", FLIGHT_SCHEMA.empty_table(), expected.rows)
    assert len(verdict.differences) == len(expected.rows)
    assert len(verdict.describe().splitlines()) < 10
