"""PLOT: charts of an aggregate over time, as text and as SVG."""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape

import pyarrow as pa

from weir.errors import QueryError

__all__ = ["svg_chart", "text_chart"]

_BLOCKS = " ▏▎▍▌▋▊▉█"
_MOST_BLOCKS = 50
_SVG_SIZE = (900, 360)
_COLORS = ("#2563eb", "#dc2626", "#16a34a", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4b5563")


def _series(table: pa.Table) -> tuple[list[Any], dict[str, list[float | None]]]:
    """Return the buckets, and the values in them for every group and aggregate."""
    if "bucket" not in table.column_names:
        raise QueryError("only an aggregate over time can be drawn", where="query", hint="Write PLOT and PER")
    at = table.column_names.index("bucket")
    numbers = [
        field.name
        for field in list(table.schema)[at + 1 :]
        if pa.types.is_integer(field.type)
        or pa.types.is_floating(field.type)
        or pa.types.is_decimal(field.type)
    ]
    values = [
        name for name in numbers if name.split("_")[0] in ("count", "total", "avg", "min", "max")
    ] or numbers
    groups = [name for name in table.column_names if name != "bucket" and name not in values]
    buckets = sorted({row for row in table.column("bucket").to_pylist() if row is not None})
    place = {bucket: number for number, bucket in enumerate(buckets)}
    series: dict[str, list[float | None]] = {}
    for row in table.to_pylist():
        if row["bucket"] is None:
            continue
        group = ", ".join(str(row[name]) for name in groups)
        for name in values:
            label = f"{group}: {name}" if group else name
            line = series.setdefault(label, [None] * len(buckets))
            line[place[row["bucket"]]] = None if row[name] is None else float(row[name])
    return buckets, series


def text_chart(table: pa.Table) -> str:
    """Return a bar chart as text, with one bar for every bucket and series."""
    buckets, series = _series(table)
    known = [value for line in series.values() for value in line if value is not None]
    most = max([abs(value) for value in known], default=0.0) or 1.0
    lines = []
    for label, values in series.items():
        lines.append(label)
        for bucket, value in zip(buckets, values, strict=True):
            eighths = 0 if value is None else round(abs(value) / most * _MOST_BLOCKS * 8)
            bar = _BLOCKS[-1] * (eighths // 8) + _BLOCKS[eighths % 8].strip()
            shown = "" if value is None else f"{value:g}"
            lines.append(f"  {bucket:%Y-%m-%d %H:%M} {bar} {shown}".rstrip())
    return "\n".join(lines) if lines else "nothing to draw"


def svg_chart(table: pa.Table) -> str:
    """Return a line chart as SVG."""
    buckets, series = _series(table)
    left, bottom, top = 70, 40, 20 + 18 * len(series)
    width, height = _SVG_SIZE
    whole = height + top
    known = [value for line in series.values() for value in line if value is not None]
    low, high = min([0.0, *known]), max([0.0, *known]) or 1.0
    high = high if high > low else low + 1

    def x(number: int) -> float:
        return left + (width - left - 20) * (number / max(len(buckets) - 1, 1))

    def y(value: float) -> float:
        return top + (height - bottom) * (1 - (value - low) / (high - low))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{whole}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{width}" height="{whole}" fill="white"/>',
    ]
    for value in (low, (low + high) / 2, high):
        parts.append(
            f'<line x1="{left}" x2="{width - 20}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>'
        )
        parts.append(f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    for number in {0, len(buckets) // 2, len(buckets) - 1} if buckets else ():
        said = escape(f"{buckets[number]:%Y-%m-%d %H:%M}")
        parts.append(f'<text x="{x(number):.1f}" y="{whole - 10}" text-anchor="middle">{said}</text>')
    for at, (label, values) in enumerate(series.items()):
        color = _COLORS[at % len(_COLORS)]
        points = [(x(number), y(value)) for number, value in enumerate(values) if value is not None]
        line = " ".join(f"{one:.1f},{other:.1f}" for one, other in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{one:.1f}" cy="{other:.1f}" r="2.5" fill="{color}"/>' for one, other in points
        ]
        parts.append(f'<text x="{left}" y="{16 + 18 * at}" fill="{color}">{escape(label)}</text>')
    return "\n".join([*parts, "</svg>"])
