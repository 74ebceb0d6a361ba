"""Random stores and random queries."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

__all__ = ["TYPES", "random_count", "random_payload", "random_query"]

TYPES: dict[str, dict[str, Any]] = {
    "signup": {
        "plan": ["free", "pro", "team"],
        "country": "string | null",
        "amount": "decimal(12,2)",
        "n": "int | null",
        "x": "float | null",
        "ok": "bool | null",
        "born": "date | null",
        "at": "datetime | null",
    },
    "order": {"n": "int", "country": "string | null", "at": "datetime | null", "drop": "string | null"},
    "click": {"country": "string", "n": "float | null", "ok": "bool"},
}
KINDS = {
    name: {field: ("enum" if isinstance(kind, list) else kind) for field, kind in fields.items()}
    for name, fields in TYPES.items()
}
_COUNTRIES = ["US", "DE", "it's", 'a "b"', "50%", "ä_ö", "back\\slash", ""]
_START = datetime(2026, 3, 27, tzinfo=UTC)


def moment(random: Random) -> datetime:
    """Instants close together, over a change of clocks."""
    return _START + timedelta(minutes=random.randrange(0, 5 * 24 * 60, 7))


def _value(random: Random, kind: str) -> Any:
    if kind == "string":
        return random.choice(_COUNTRIES)
    if kind == "enum":
        return random.choice(["free", "pro", "team"])
    if kind == "int":
        return random.choice([0, 1, 2, 3, -1, 7, (1 << 63) - 1 if random.random() < 0.05 else 5])
    if kind == "float":
        return random.choice([0.0, 0.5, 1.0, 1.5, -2.25, 3.0])
    if kind == "bool":
        return random.random() < 0.5
    if kind == "date":
        return date(2026, 3, 27) + timedelta(days=random.randrange(5))
    if kind == "datetime":
        return moment(random)
    return Decimal(random.randrange(-200, 2000)) / 100


def random_payload(random: Random, name: str) -> dict[str, Any]:
    """Values as the model keeps them; the store takes them as they are."""
    payload = {}
    for field, kind in KINDS[name].items():
        optional = kind.endswith("| null")
        if optional and random.random() < 0.3:
            continue
        payload[field] = _value(random, kind.split(" ")[0].split("(")[0])
    return payload


def as_given(payload: dict[str, Any]) -> dict[str, Any]:
    """Payload as a caller gives it."""
    return {
        name: value.isoformat() if isinstance(value, (date, datetime)) else value
        for name, value in payload.items()
    }


def _text(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _literal(random: Random, kind: str) -> str:
    plain = kind.split(" ")[0].split("(")[0]
    if plain in ("int", "float", "decimal") and random.random() < 0.4:
        return random.choice(["1.5", "2", "-1", "0.005", "99999999999999999999", "1e3", "0.50"])
    value = _value(random, plain)
    if plain == "enum" and random.random() < 0.1:
        value = "unknown"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (datetime, date)):
        return _text(value.isoformat())
    if isinstance(value, str):
        return value if value.isalpha() and value.isascii() and random.random() < 0.5 else _text(value)
    return str(value)


def _condition(random: Random, name: str, prefix: str, depth: int) -> str:
    if depth and random.random() < 0.5:
        joined = random.choice([" AND ", " OR "]).join(
            _condition(random, name, prefix, depth - 1) for _ in range(random.randrange(2, 4))
        )
        return f"({joined})"
    if depth and random.random() < 0.3:
        return f"NOT ({_condition(random, name, prefix, depth - 1)})"
    kinds = {**KINDS[name], "timestamp": "datetime", "context_id": "string"}
    field = random.choice(list(kinds))
    kind = kinds[field]
    shown = f"{prefix}{field}"
    roll = random.random()
    if roll < 0.1:
        return f"{shown} IS {random.choice(['', 'NOT '])}NULL"
    if kind.startswith("bool"):
        return random.choice([shown, f"{shown} = true", f"{shown} != true", f"{shown} = false"])
    if roll < 0.2:
        values = ", ".join(_literal(random, kind) for _ in range(random.randrange(1, 4)))
        return f"{shown} {random.choice(['', 'NOT '])}IN ({values})"
    if roll < 0.3:
        low, high = _literal(random, kind), _literal(random, kind)
        return f"{shown} {random.choice(['', 'NOT '])}BETWEEN {low} AND {high}"
    if kind.startswith(("string", "enum")) and roll < 0.45:
        pattern = random.choice(["%", "_S", "%e%", "f%", "%%o", "it's", "", "ä__", "D_"])
        return f"{shown} {random.choice(['', 'NOT '])}LIKE {_text(pattern)}"
    return f"{shown} {random.choice(['=', '!=', '<', '<=', '>', '>='])} {_literal(random, kind)}"


def random_count(random: Random) -> str:
    """A query that asks only how many events meet a condition."""
    name = random.choice(list(TYPES))
    return f"QUERY {name} WHERE {random.choice(['', 'NOT '])}{_condition(random, name, '', 1)} COUNT"


def random_query(random: Random) -> str:
    """A query that is not refused."""
    names = random.sample(list(TYPES), random.choice([1, 1, 1, 2, 3]))
    is_sequence = len(names) > 1
    parts = [f"QUERY {names[0]}"]
    parts += [f"{random.choice(['FOLLOWED', 'PRECEDED'])} BY {name}" for name in names[1:]]
    if is_sequence:
        parts.append(f"LINKED BY {random.choice(['country', 'context_id'])}")
        if set(names) <= {"signup", "order"} and random.random() < 0.3:
            parts.append("USING TIME at")
        if random.random() < 0.5:
            parts.append(f'WITHIN "{random.choice(["2h", "1d", "30m", "90m"])}"')
    prefix = f"{names[0]}." if is_sequence else ""
    clauses = []
    if random.random() < 0.2:
        clauses.append(f"FOR user-{random.randrange(4)}")
    using = [field for field, kind in KINDS[names[0]].items() if kind.startswith(("date",))]
    if not is_sequence and using and random.random() < 0.3:
        clauses.append(f"USING {random.choice(using)}")
    if random.random() < 0.2:
        clauses.append(f'SINCE "{moment(random).isoformat()}"')
    if random.random() < 0.2:
        clauses.append(f"UNTIL {int(moment(random).timestamp())}")
    if random.random() < 0.6:
        conditions = [
            _condition(random, name, f"{name}." if is_sequence else "", 2)
            for name in names
            if not is_sequence or random.random() < 0.5
        ]
        if conditions:
            clauses.append(f"WHERE {' AND '.join(conditions)}")
    fields = KINDS[names[0]]
    order: list[str] = []
    if random.random() < 0.45:
        numbers = [field for field, kind in fields.items() if kind.startswith(("int", "decimal"))]
        aggregates = ["COUNT", *(f"COUNT {prefix}{field}" for field in fields)]
        aggregates += [f"COUNT UNIQUE {prefix}{field}" for field in fields]
        aggregates += [f"{random.choice(['MIN', 'MAX'])} {prefix}{field}" for field in fields]
        aggregates += [f"{random.choice(['TOTAL', 'AVG'])} {prefix}{field}" for field in numbers]
        chosen = random.sample(aggregates, random.randrange(1, 4))
        clauses.append(", ".join(chosen))
        if random.random() < 0.5:
            unit = random.choice(["minute", "hour", "day", "week", "month", "year"])
            zone = random.choice(
                ["", "", ' IN "Europe/Berlin"', ' IN "Asia/Kolkata"', ' IN "America/New_York"']
            )
            clauses.append(f"PER {unit}{zone}")
            order.append("bucket")
        if random.random() < 0.5:
            by = random.sample(list(fields), random.randrange(1, min(3, len(fields))))
            clauses.append("BY " + ", ".join(f"{prefix}{field}" for field in by))
            order += [f"{prefix}{field}" for field in by]
        if "COUNT" in chosen:
            order.append("count")
    else:
        if random.random() < 0.4:
            returned = random.sample(list(fields), random.randrange(0, 3))
            clauses.append("RETURN [" + ", ".join(f"{prefix}{field}" for field in returned) + "]")
        order = [f"{prefix}{field}" for field in (*fields, "timestamp", "context_id")]
    if order and random.random() < 0.4:
        chosen = random.sample(order, min(len(order), random.randrange(1, 3)))
        clauses.append(
            "ORDER BY " + ", ".join(f"{one} {random.choice(['', 'ASC', 'DESC'])}" for one in chosen)
        )
    if random.random() < 0.3:
        clauses.append(f"LIMIT {random.randrange(0, 6)}")
    if random.random() < 0.2:
        clauses.append(f"OFFSET {random.randrange(0, 4)}")
    random.shuffle(clauses)
    return " ".join([*parts, *clauses])
