"""The open target of a pipeline: a table or an event store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import Column
from pyspark.sql.types import StructType

from weir.engine.runner import Runner
from weir.events.event_table import EVENTS
from weir.events.payloads import columns_of_table
from weir.events.store import EventStore
from weir.spark.event_options import EventWriteOptions
from weir.spark.pipeline.bad_records import PLACE, misfit
from weir.spark.pipeline.event_target import (
    event_misfit,
    find_events,
    open_or_create_events,
    type_of_events,
)
from weir.spark.pipeline.schedule import ScheduledService
from weir.spark.pipeline.settings import Services, TargetEvents, TargetTable
from weir.spark.pipeline.table_services import table_services
from weir.spark.pipeline.target import find_table, open_or_create
from weir.spark.sink import prepare
from weir.spark.types import arrow_schema
from weir.spark.write_options import WriteOptions
from weir.table.table import Table

__all__ = ["Destination", "check_write_options", "find_destination", "open_destination", "sink_options"]


class Destination(Protocol):
    """An open target."""

    @property
    def uri(self) -> str:
        """Where it is."""

    @property
    def table(self) -> Table:
        """The table that stores the rows."""

    def check(self, rows: StructType, options: Mapping[str, str]) -> None:
        """Check that rows with some columns can be written with some options."""

    def misfit(self, rows: StructType) -> Column:
        """Return an expression for why a row does not fit; null if it does."""

    def services(self, settings: Services, runner: Runner) -> tuple[ScheduledService, ...]:
        """Return the services to run beside the stream, in an order in which each prepares the next."""


@dataclass(frozen=True, slots=True)
class TableDestination:
    """A table that takes the rows.

    Parameters
    ----------
    table : Table
        The table.
    """

    table: Table

    @property
    def uri(self) -> str:
        """Where it is."""
        return self.table.uri

    def check(self, rows: StructType, options: Mapping[str, str]) -> None:
        """Check that rows with some columns can be written with some options.

        Raises
        ------
        SchemaError, KeyValueError, OptionError
            If they cannot be written.
        """
        prepare(self.table, WriteOptions.parse({"path": self.uri, **options}), rows, overwrite=False)

    def misfit(self, rows: StructType) -> Column:
        """Return an expression for why a row does not fit; null if it does."""
        return misfit(rows, self.table.schema, self.table.primary_key)

    def services(self, settings: Services, runner: Runner) -> tuple[ScheduledService, ...]:
        """Return the services to run beside the stream."""
        return table_services(self.table, settings, runner)


@dataclass(frozen=True, slots=True)
class EventDestination:
    """An event store that takes the rows.

    Parameters
    ----------
    target : TargetEvents
        The target as described in the pipeline.
    store : EventStore
        The store.
    """

    target: TargetEvents
    store: EventStore

    @property
    def uri(self) -> str:
        """Where it is."""
        return self.store.path

    @property
    def table(self) -> Table:
        """The table of its events."""
        return self.store.tables[EVENTS]

    def check(self, rows: StructType, options: Mapping[str, str]) -> None:
        """Check that rows with some columns can be events of the type.

        Raises
        ------
        SchemaError
            If a column is missing, or is not a field of the type.
        """
        kind = type_of_events(self.target, self.store)
        columns_of_table(kind, arrow_schema(rows).empty_table())

    def misfit(self, rows: StructType) -> Column:
        """Return an expression for why a row does not fit; null if it does."""
        return event_misfit(rows, type_of_events(self.target, self.store), PLACE)

    def services(self, settings: Services, runner: Runner) -> tuple[ScheduledService, ...]:
        """Return the services to run beside the stream, for the table of events and for the store."""

        def maintain() -> Mapping[str, Any]:
            report = self.store.maintain(horizon=settings.horizon)
            return {"erased": report.erasure.events, "left": report.erasure.left}

        whole = () if settings.maintain is None else (("maintain", settings.maintain, maintain),)
        return (
            *table_services(self.table, settings, runner),
            *(ScheduledService(*one) for one in whole),
        )


def find_destination(target: TargetTable | TargetEvents) -> Destination | None:
    """Return the target; None if it does not exist but can be created.

    Raises
    ------
    TableNotFoundError
        If it does not exist, and no schema is given to create it.
    InputError
        If it exists but differs from the description.
    """
    if isinstance(target, TargetEvents):
        store = find_events(target)
        return None if store is None else EventDestination(target, store)
    table = find_table(target)
    return None if table is None else TableDestination(table)


def open_destination(target: TargetTable | TargetEvents) -> Destination:
    """Return the target; create it if it does not exist.

    Raises
    ------
    TableNotFoundError, InputError
        As for :func:`find_destination`.
    """
    if isinstance(target, TargetEvents):
        return EventDestination(target, open_or_create_events(target))
    return TableDestination(open_or_create(target))


def sink_options(target: TargetTable | TargetEvents) -> dict[str, str]:
    """Return the sink options for a target."""
    storage = {f"storage.{name}": value for name, value in target.storage_options.items()}
    told = {**storage, "fsync": str(target.fsync).lower()}
    return {**told, "type": target.type} if isinstance(target, TargetEvents) else told


def check_write_options(target: TargetTable | TargetEvents, options: Mapping[str, str]) -> None:
    """Check the sink options.

    Raises
    ------
    OptionError
        If an option is unknown or not valid.
    """
    parse = EventWriteOptions.parse if isinstance(target, TargetEvents) else WriteOptions.parse
    parse({"path": target.uri, **options})
