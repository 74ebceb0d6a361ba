"""A naive interpreter of the language: events are dicts in a list, each clause is done by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from weir.events.language import tree
from weir.events.language.parser import parse

__all__ = ["Model", "bucket", "instant"]

CORE = ("event_id", "context_id", "event_type", "timestamp")
_WORDS = {"true": True, "false": False}


def instant(value: Any) -> datetime:
    """An instant as the language takes it: text or seconds."""
    if isinstance(value, (int, Decimal)):
        return datetime.fromtimestamp(int(value), UTC)
    at = datetime.fromisoformat(value)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


class Model:
    """Types by name with (field, kind) pairs, and events in the order of their ids."""

    def __init__(self, types: Mapping[str, Mapping[str, str]]) -> None:
        self.types = {name: dict(fields) for name, fields in types.items()}
        self.events: list[dict[str, Any]] = []

    def of(self, kind: str) -> list[dict[str, Any]]:
        return sorted(
            (one for one in self.events if one["event_type"] == kind), key=lambda one: one["event_id"]
        )

    def query(self, text: str) -> list[dict[str, Any]]:
        query = parse(text)
        assert isinstance(query, tree.Query)
        names = [query.type.text, *(step.type.text for step in query.steps)]
        rows = (
            self._matches(query, names)
            if query.steps
            else [{names[0]: one} for one in self._selected(query, names[0])]
        )
        first = names[0]

        def value(row: Mapping[str, Any], field: tree.FieldName) -> Any:
            return row[field.type or first].get(field.text)

        if query.aggregates:
            return self._aggregated(query, rows, value, first)
        rows.sort(key=lambda row: row[first]["event_id"])
        for one in reversed(query.order_by):
            rows = _ordered(rows, lambda row, one=one: value(row, one.field), one.descending)
        shown: list[tuple[str, str]] = []
        for name in names:
            fields = list(self.types[name])
            if query.returns:
                fields = [
                    one.text
                    for one in query.returns
                    if (one.type or (None if query.steps else name)) == name and one.text in fields
                ]
            shown += [(name, field) for field in dict.fromkeys((*CORE, *fields))]
        prefix = bool(query.steps)
        out = [
            {(f"{name}.{field}" if prefix else field): row[name].get(field) for name, field in shown}
            for row in rows
        ]
        return _limited(out, query)

    def _time(self, query: tree.Query, event: Mapping[str, Any]) -> datetime | None:
        at = event.get("timestamp" if query.using is None else query.using.text)
        if isinstance(at, date) and not isinstance(at, datetime):
            return datetime(at.year, at.month, at.day, tzinfo=UTC)
        return at

    def _selected(self, query: tree.Query, kind: str) -> list[dict[str, Any]]:
        found = []
        for event in self.of(kind):
            at = self._time(query, event)
            if query.context is not None and event["context_id"] != query.context.text:
                continue
            if query.since is not None and (at is None or at < instant(query.since.value)):
                continue
            if query.until is not None and (at is None or at >= instant(query.until.value)):
                continue
            if all(
                holds(one, event, {**self.types[kind], **_CORE_KINDS}) is True
                for one in _conjuncts(query.where)
                if not query.steps or _step(one) == kind
            ):
                found.append(event)
        return found

    def _matches(self, query: tree.Query, names: list[str]) -> list[dict[str, Any]]:
        link = query.linked_by.text  # type: ignore[union-attr]
        time = query.using_time.text if query.using_time else "timestamp"

        def at(event: Mapping[str, Any]) -> Any:
            return event.get(time)

        found = []
        steps = {name: self._selected(query, name) for name in names}
        for first in steps[names[0]]:
            row = {names[0]: first}
            last = first
            for step in query.steps:
                candidates = [
                    one
                    for one in steps[step.type.text]
                    if one.get(link) is not None
                    and one.get(link) == last.get(link)
                    and at(one) is not None
                    and at(last) is not None
                    and (at(one) < at(last) if step.before else at(one) >= at(last))
                ]
                if not candidates:
                    break
                best = (max if step.before else min)(candidates, key=lambda one: (at(one), one["event_id"]))
                row[step.type.text] = last = best
            else:
                if query.within is None or abs(at(last) - at(first)) <= query.within:
                    found.append(row)
        return found

    def _aggregated(self, query: tree.Query, rows: Any, value: Any, first: str) -> list[dict[str, Any]]:
        groups: dict[tuple[Any, ...], list[Any]] = {}
        if not query.by and not query.per:
            groups[()] = []
        for row in rows:
            key = tuple(value(row, field) for field in query.by)
            if query.per:
                at = self._time(query, row[first])
                key = (
                    None if at is None else bucket(at, query.per, query.zone.text if query.zone else "UTC"),
                    *key,
                )
            groups.setdefault(key, []).append(row)
        names = [*(["bucket"] if query.per else []), *(str(field) for field in query.by)]
        out = []
        for key, members in groups.items():
            result = dict(zip(names, key, strict=True))
            for aggregate in query.aggregates:
                result[aggregate.column] = _aggregate(aggregate, members, value)
            out.append(result)
        for name in reversed(names):
            out = _ordered(out, lambda row, name=name: row[name], False)
        for one in reversed(query.order_by):
            out = _ordered(out, lambda row, one=one: row[str(one.field)], one.descending)
        return _limited(out, query)


_CORE_KINDS = {"event_id": "int", "context_id": "string", "event_type": "string", "timestamp": "datetime"}


def _limited(rows: list[Any], query: tree.Query) -> list[Any]:
    rows = rows[query.offset or 0 :]
    return rows if query.limit is None else rows[: query.limit]


def _ordered(rows: list[Any], key: Any, descending: bool) -> list[Any]:
    """A stable sort with nulls last."""
    known = sorted((row for row in rows if key(row) is not None), key=key)
    if descending:
        # Stable from the end, too.
        known = sorted((row for row in rows if key(row) is not None), key=lambda row: _Reversed(key(row)))
    return known + [row for row in rows if key(row) is None]


class _Reversed:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)


def _aggregate(one: tree.Aggregate, rows: list[Any], value: Any) -> Any:
    if one.field is None:
        return len(rows)
    values = [value(row, one.field) for row in rows]
    values = [one for one in values if one is not None]
    if one.kind == "count":
        return len(values)
    if one.kind == "count_unique":
        return len(set(values))
    if not values:
        return None
    if one.kind == "total":
        return sum(values)
    if one.kind == "avg":
        return float(sum(Fraction(one) for one in values) / len(values))
    return min(values) if one.kind == "min" else max(values)


def bucket(at: datetime, unit: str, zone: str) -> datetime:
    """When the bucket of an instant begins."""
    local = at.astimezone(ZoneInfo(zone))
    if unit in ("minute", "hour"):
        local = local.replace(second=0, microsecond=0)
        # By the offset of this very moment: the clocks may show an hour twice.
        return at - (
            at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
            - local.replace(tzinfo=None, minute=0 if unit == "hour" else local.minute)
        )
    day = local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    if unit == "week":
        day -= timedelta(days=day.weekday())
    elif unit == "month":
        day = day.replace(day=1)
    elif unit == "year":
        day = day.replace(month=1, day=1)
    return _first_shown(day.replace(tzinfo=None), ZoneInfo(zone))


def _first_shown(shown: datetime, zone: ZoneInfo) -> datetime:
    """When clocks first show a time; if they never do, when they are set to a later one."""
    after = shown.replace(tzinfo=zone).astimezone(UTC)
    if after.astimezone(zone).replace(tzinfo=None) == shown:
        return after
    before = shown.replace(tzinfo=zone, fold=1).astimezone(UTC)
    while after - before > timedelta(seconds=1):
        middle = before + (after - before) // timedelta(seconds=2) * timedelta(seconds=1)
        if middle.astimezone(zone).replace(tzinfo=None) < shown:
            before = middle
        else:
            after = middle
    return after


# --- Conditions: True, False, or None for unknown ------------------------------------------------


def _conjuncts(condition: tree.Condition | None) -> list[tree.Condition]:
    if condition is None:
        return []
    if isinstance(condition, tree.All):
        return [one for part in condition.conditions for one in _conjuncts(part)]
    return [condition]


def _step(condition: tree.Condition) -> str | None:
    if isinstance(condition, tree.Not):
        return _step(condition.condition)
    if isinstance(condition, (tree.All, tree.AnyOf)):
        return _step(condition.conditions[0])
    return condition.field.type


def _value(value: tree.Value, kind: str) -> Any:
    if kind == "bool":
        return _WORDS[str(value.value).lower()]
    if kind == "date":
        return date.fromisoformat(str(value.value))
    if kind == "datetime":
        return instant(value.value)
    return value.value


def holds(condition: tree.Condition, event: Mapping[str, Any], kinds: Mapping[str, str]) -> bool | None:
    """Whether a condition holds, in the logic of three values."""
    if isinstance(condition, tree.Not):
        inner = holds(condition.condition, event, kinds)
        return None if inner is None else not inner
    if isinstance(condition, (tree.All, tree.AnyOf)):
        parts = [holds(one, event, kinds) for one in condition.conditions]
        decided = isinstance(condition, tree.AnyOf)
        if decided in parts:
            return decided
        return None if None in parts else not decided
    found = event.get(condition.field.text)
    if isinstance(condition, tree.IsNull):
        return (found is None) != condition.negated
    if found is None:
        return None
    kind = kinds[condition.field.text].split(" ")[0].split("(")[0]
    if isinstance(condition, tree.Bare):
        return bool(found)
    if isinstance(condition, tree.Comparison):
        return _compare(found, condition.operator, _value(condition.value, kind))
    if isinstance(condition, tree.IsIn):
        result = any(_compare(found, "=", _value(one, kind)) for one in condition.values)
    elif isinstance(condition, tree.Between):
        result = _compare(found, ">=", _value(condition.low, kind)) and _compare(
            found, "<=", _value(condition.high, kind)
        )
    else:
        pattern = "".join(
            {"%": ".*", "_": "."}.get(one, re.escape(one)) for one in str(condition.pattern.value)
        )
        result = re.fullmatch(pattern, found, re.DOTALL) is not None
    return result != condition.negated


def _compare(left: Any, operator: str, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, Decimal):
        right = float(right)
    return bool(
        {
            "=": lambda: left == right,
            "!=": lambda: left != right,
            "<": lambda: left < right,
            "<=": lambda: left <= right,
            ">": lambda: left > right,
            ">=": lambda: left >= right,
        }[operator]()
    )
