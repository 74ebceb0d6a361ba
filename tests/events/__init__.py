"""Tests of the event store, against plain lists of dicts."""
