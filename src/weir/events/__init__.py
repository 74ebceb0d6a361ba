"""The event store: typed, ordered events in contexts, with a query language and replay, on Weir tables.

See :func:`weir.events.create` for an example.
"""

from weir.events.event_types import EventType
from weir.events.lifecycle import create, open
from weir.events.result import Result
from weir.events.store import EventStore
from weir.events.writer import Appended, EventWriter, Ingested

__all__ = ["Appended", "EventStore", "EventType", "EventWriter", "Ingested", "Result", "create", "open"]
