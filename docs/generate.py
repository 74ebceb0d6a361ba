"""Writes the parts of the documentation that are made from the code: ``python -m docs.generate``.

They stand between ``<!-- generated: NAME -->`` and ``<!-- /generated -->``. A test compares them with what
would be written now, so that they cannot drift.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric
from typer.main import get_command

import weir
from weir import errors, events, namespaces
from weir.changes.feed import ChangeBatch, ChangeFeed
from weir.changes.plan import ChangePlan
from weir.changes.range import ChangeRange, ShardChanges
from weir.cli.commands import app
from weir.config import WriterOptions
from weir.engine.metrics import Metrics
from weir.engine.registry import Registry
from weir.format.snapshot_token import ShardCut, SnapshotToken
from weir.maintenance.catch_up import IndexCaughtUp
from weir.maintenance.garbage.report import GarbageItem, GarbageReport, KeptItem
from weir.maintenance.index_status import IndexReport
from weir.maintenance.recover import RecoverReport, ShardRecovery
from weir.maintenance.status import ShardReport, TableStatus
from weir.maintenance.verify import Finding, VerifyReport
from weir.merge.service import MergeReport
from weir.read.result import RowResult
from weir.read.scan import Scan
from weir.service.options import ServiceOptions
from weir.service.telemetry import Telemetry
from weir.snapshots.snapshot import Consistency
from weir.table.load import LoadResult
from weir.write.table_writer import TableWriter
from weir.write.write_result import WriteResult

__all__ = ["SECTIONS", "with_sections"]

DOCS = Path(__file__).resolve().parent
MARKED = re.compile(
    r"(?P<start><!-- generated: (?P<name>[\w-]+) -->\n).*?(?P<end><!-- /generated -->)", re.DOTALL
)


def with_sections(page: str) -> str:
    """Return a page with its generated sections as the code has them now."""
    return MARKED.sub(lambda found: f"{found['start']}\n{SECTIONS[found['name']]()}\n\n{found['end']}", page)


# --- Docstrings ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Docstring:
    """The parts of a numpydoc docstring that the reference shows.

    Parameters
    ----------
    summary : str
        Everything before the first section.
    parameters, raised : tuple of (str, str)
        Names and what is said of them.
    """

    summary: str
    parameters: tuple[tuple[str, str], ...]
    raised: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, documented: object) -> Docstring:
        """Read the docstring of a class, function or property."""
        text = inspect.getdoc(documented) or ""
        titled = re.split(r"^(\w[\w ]*)\n-{3,}\n", text, flags=re.MULTILINE)
        sections = dict(zip(titled[1::2], titled[2::2], strict=True))
        return cls(
            _markdown(titled[0]),
            tuple(_entries(sections.get("Parameters", ""))),
            tuple(_entries(sections.get("Raises", ""))),
        )


def _entries(section: str) -> Iterator[tuple[str, str]]:
    """Yield the names of a section, as code, and the text that is indented below them."""
    for match in re.finditer(r"^(\S.*)\n((?:[ \t]+.*\n?|\n)*)", section + "\n", re.MULTILINE):
        names = match[1].partition(" : ")[0].split(", ")
        text = _markdown(" ".join(match[2].split()))
        yield ", ".join(f"`{name.lstrip('*')}`" for name in names), text


def _markdown(text: str) -> str:
    """Return reStructuredText as it occurs in the docstrings as Markdown."""
    text = re.sub(r":\w+:`([^`<]+) <[^`]+>`", r"\1", text)
    text = re.sub(r":func:`(weir\.(?:events\.)?\w+)`", r"`\1`", text)
    text = re.sub(r":\w+:`~?(?:[a-z_]\w*\.)*([\w.]+)`", r"`\1`", text)
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n") if "::" not in part]
    return re.sub(r"``(.+?)``", r"`\1`", "\n\n".join(part for part in paragraphs if part))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# --- The Python interface ------------------------------------------------------------------------


def _signature(name: str, function: Callable[..., Any]) -> str:
    """Return a call with the annotations as they stand in the source."""
    shown, keyword_only = [], False
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            shown.append("*")
            keyword_only = True
        text = f"**{parameter.name}" if parameter.kind is parameter.VAR_KEYWORD else parameter.name
        if parameter.annotation is not parameter.empty:
            text += f": {parameter.annotation}"
        if parameter.default is not parameter.empty:
            default = parameter.default
            text += f" = {str(default)!r}" if isinstance(default, Consistency) else f" = {default!r}"
        shown.append(text)
    line = f"{name}({', '.join(shown)})"
    if len(line) > 100:
        line = "\n".join([f"{name}(", *(f"    {one}," for one in shown), ")"])
    returns = signature.return_annotation
    return line if returns in (signature.empty, "None") else f"{line} -> {returns}"


def _function(name: str, function: Callable[..., Any], level: str) -> str:
    documented = Docstring.of(function)
    parts = [f"{level} `{name}`", f"```text\n{_signature(name, function)}\n```", documented.summary]
    if documented.parameters:
        parts.append(_table(["parameter", "meaning"], documented.parameters))
    if documented.raised:
        parts.append(_table(["raises", "when"], documented.raised))
    return "\n\n".join(parts)


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class, in the order of the source; inherited ones last."""
    seen: set[str] = set()
    for base in kind.__mro__:
        if base is not kind and base not in _SHOWN_BASES:
            continue
        for name, member in vars(base).items():
            if name.startswith("_") or name in seen or name in _HIDDEN.get(kind, ()):
                continue
            if inspect.isfunction(member) or isinstance(member, (property, classmethod)):
                seen.add(name)
                yield name, member


_SHOWN_BASES = (RowResult,)
# What returns the table below a namespace, for the service.
_HIDDEN: dict[type, tuple[str, ...]] = {
    namespaces.Namespace: ("opened", "find", "create", "change", "last_opened")
}


def _class(kind: type, level: str = "##", *, is_called: bool = False, methods: bool = True) -> str:
    """Describe a class: its fields or, if `is_called`, the arguments it is made with; and its members."""
    variables = {
        "Table": "table",
        "TableMaintenance": "table.maintenance",
        "TableIndexes": "table.indexes",
        "TableInspection": "table.inspect",
        "TableTags": "table.tags",
        "TableWriter": "writer",
        "Scan": "scan",
        "Search": "search",
        "SqlQuery": "query",
        "Engine": "engine",
        "EventStore": "store",
        "EventWriter": "writer",
        "Result": "result",
        "ChangeFeed": "feed",
        "Namespaces": "namespaces",
        "Namespace": "namespace",
    }
    variable = variables.get(kind.__name__, "")
    documented = Docstring.of(kind)
    parts = [f"{level} `{kind.__name__}`", documented.summary]
    properties = [(n, m) for n, m in _members(kind) if isinstance(m, property)]
    if is_called:
        name = kind.__name__ if kind.__module__.startswith("weir.spark") else f"weir.{kind.__name__}"
        parts.insert(1, f"```text\n{_signature(name, kind)}\n```")
        parts.append(_table(["parameter", "meaning"], documented.parameters))
    elif is_dataclass(kind):
        parts.append(_table(["field", "meaning"], documented.parameters))
    if properties:
        rows = [(f"`{name}`", Docstring.of(member).summary) for name, member in properties]
        parts.append(_table(["property", "meaning"], rows))
    for name, member in _members(kind) if methods else ():
        if isinstance(member, classmethod):
            parts.append(_function(f"{kind.__name__}.{name}", getattr(kind, name), f"{level}#"))
        elif inspect.isfunction(member):
            parts.append(_function(f"{variable}.{name}" if variable else name, member, f"{level}#"))
    return "\n\n".join(parts)


_PACKAGES = {
    "errors": "Every error, as one tree: see [Errors](errors.md).",
    "events": "Event stores: see [Events](../guides/events.md).",
    "namespaces": "Documents with vectors and free-form attributes: see [The service](../guides/service.md).",
    "sketches": "Sketches for columns of a merge engine: see [Merge engines](../guides/merge-engines.md).",
    "transforms": "The shard rules: see [Sharding](../guides/sharding.md).",
}


def _public() -> str:
    def kind(name: str) -> str:
        value = getattr(weir, name)
        if inspect.isclass(value):
            return Docstring.of(value).summary.partition(". ")[0].rstrip(".") + "."
        if inspect.ismodule(value):
            return _PACKAGES[name]
        if callable(value):
            return Docstring.of(value).summary.partition("\n\n")[0]
        return "The version, as text."

    return _table(["name", "what it is"], [(f"`weir.{name}`", kind(name)) for name in sorted(weir.__all__)])


def _engine() -> str:
    parts = (_class(weir.Engine, is_called=True), *(_class(one, "###") for one in _POLICIES))
    return "\n\n".join(parts)


_POLICIES = (weir.UpkeepPolicy, weir.MergePolicy)


def _arguments() -> str:
    kinds = (weir.Source, weir.Upsert, weir.Insert, weir.Patch, weir.Delete, weir.MergeEngine)
    shown = [_class(kind, "###") for kind in kinds]
    return "\n\n".join([*shown, *(_class(one, "###", methods=False) for one in (weir.ShardBy, Consistency))])


def _indexes() -> str:
    kinds = (weir.IndexDefinition, weir.ExistingIndex, weir.IndexPolicy)
    return "\n\n".join([_class(weir.TableIndexes), *(_class(one, "###", methods=False) for one in kinds)])


def _reads() -> str:
    queries = (
        weir.MatchQuery,
        weir.PhraseQuery,
        weir.MultiMatchQuery,
        weir.BooleanQuery,
        weir.BoostQuery,
    )
    reads = (Scan, weir.Search, weir.SqlQuery)
    return "\n\n".join([*map(_class, reads), *(_class(one, "###", methods=False) for one in queries)])


def _event_store() -> str:
    functions = (events.create, events.open)
    kinds = (events.EventStore, events.EventWriter)
    results = (events.Appended, events.Ingested, events.EventType, events.Result)
    return "\n\n".join(
        [
            *(_function(f"weir.events.{one.__name__}", one, "##") for one in functions),
            *map(_class, kinds),
            *(_class(one, methods=one is events.Result) for one in results),
        ]
    )


def _namespaces() -> str:
    first = ["open", "Namespaces", "Namespace"]
    names = [*first, *(name for name in sorted(namespaces.__all__) if name not in first)]
    shown = [getattr(namespaces, name) for name in names]
    functions = [one for one in shown if not inspect.isclass(one)]
    return "\n\n".join(
        [
            *(_function(f"weir.namespaces.{one.__name__}", one, "##") for one in functions),
            *(_class(one) for one in shown if inspect.isclass(one)),
        ]
    )


def _spark() -> str:
    # Here, as most pages need no Spark.
    from weir.spark import SparkRunner, cluster_by_shard, lookup_join, register, sql

    functions = (register, sql, cluster_by_shard, lookup_join)
    shown = [_function(f"weir.spark.{one.__name__}", one, "###") for one in functions]
    return "\n\n".join([*shown, _class(SparkRunner, "###", is_called=True, methods=False)])


def _pipeline_file() -> str:
    from weir.spark.pipeline import pipeline_file

    before, _, after = (inspect.getdoc(pipeline_file) or "").partition("\n\nDurations")
    block = textwrap.dedent(before.partition("::\n\n")[2])
    return f"```text\n{block}\n```\n\n{_markdown('Durations' + after)}"


def _pipeline() -> str:
    from weir.spark import pipeline

    settings = (
        pipeline.FormatSource,
        pipeline.ValueFormat,
        pipeline.CallableSource,
        pipeline.TargetTable,
        pipeline.TargetEvents,
        pipeline.Services,
        pipeline.Metrics,
        pipeline.Quarantine,
        pipeline.PipelineCheck,
        pipeline.PipelineSummary,
        pipeline.MetricsSample,
        pipeline.PipelineState,
    )
    functions = (pipeline.read_pipeline_file, pipeline.pipeline_state)
    return "\n\n".join(
        [
            _class(pipeline.Pipeline, "###"),
            *(_class(one, "###", methods=False) for one in settings),
            *(_function(f"weir.spark.pipeline.{one.__name__}", one, "###") for one in functions),
        ]
    )


def _functions() -> str:
    names = [name for name in weir.__all__ if inspect.isfunction(getattr(weir, name))]
    order = {"create": 0, "open": 1, "bounded": 2}
    names.sort(key=lambda name: (order.get(name, 3), name))
    return "\n\n".join(_function(f"weir.{name}", getattr(weir, name), "###") for name in names)


def _results() -> str:
    kinds = (
        WriteResult,
        LoadResult,
        MergeReport,
        TableStatus,
        ShardReport,
        IndexReport,
        RecoverReport,
        ShardRecovery,
        GarbageReport,
        GarbageItem,
        KeptItem,
        VerifyReport,
        Finding,
        weir.CompactReport,
        weir.CatchUpReport,
        IndexCaughtUp,
        weir.ExpireReport,
        weir.MaintenanceReport,
        weir.RepairReport,
        weir.DropReport,
        weir.UpgradeReport,
    )
    return "\n\n".join(_class(kind, "###") for kind in kinds)


def _changes() -> str:
    kinds = (ChangeFeed, ChangeBatch, ChangePlan, ChangeRange, ShardChanges, SnapshotToken, ShardCut)
    return "\n\n".join(_class(kind, "###") for kind in kinds)


def _writer_options() -> str:
    told = {name.strip("`"): text for name, text in Docstring.of(WriterOptions).parameters}
    rows = []
    for field in fields(WriterOptions):
        assert field.default is not MISSING
        is_number = isinstance(field.default, int) and not isinstance(field.default, bool)
        default = f"{field.default:,}" if is_number else str(field.default)
        rows.append((f"`{field.name}`", f"`{field.type}`", default, told[field.name]))
    return _table(["option", "type", "default", "meaning"], rows)


def _service_options() -> str:
    told = {
        name.strip("`"): text
        for names, text in Docstring.of(ServiceOptions).parameters
        for name in names.split(", ")
    }
    rows = [(f"`{field.name.replace('_', '-')}`", told[field.name]) for field in fields(ServiceOptions)]
    return _table(["key", "meaning"], rows)


# --- Metrics -------------------------------------------------------------------------------------


def _metrics() -> str:
    rows = [
        (f"`{one.name}`", one.kind, ", ".join(f"`{name}`" for name in one.labels), one.help)
        for one in Metrics().instruments
    ]
    return _table(["metric", "kind", "labels", "meaning"], rows)


def _service_metrics() -> str:
    telemetry = Telemetry(Registry(), cast("namespaces.Namespaces", _NoNamespaces()))
    counted = [one for one in vars(telemetry).values() if isinstance(one, MetricWrapperBase)]
    rows = [(family, one._labelnames) for one in counted for family in one.describe()]
    named = {family.name for family, _ in rows}
    rows += [(family, ()) for family in telemetry.registry.collect() if family.name not in named]
    return _families(rows)


class _NoNamespaces:
    """Namespaces that nobody has asked for."""

    def open_here(self) -> tuple[()]:
        return ()


def _pipeline_metrics() -> str:
    from weir.spark.pipeline import MetricsSample, PrometheusSamples

    samples = PrometheusSamples("")
    figures: dict[str, Any] = {one.name: 0 for one in fields(MetricsSample) if one.default is MISSING}
    figures |= {"freshness_parts": {"": 0.0}, "behind": {"": 0.0}}
    figures["services"] = {"": SimpleNamespace(runs=0, failures=0)}
    samples.note(MetricsSample(**figures))
    return _families((family, list(family.samples[0].labels)) for family in samples.collect())


def _families(families: Iterable[tuple[Metric, Sequence[str]]]) -> str:
    rows = [
        (
            f"`{one.name}_total`" if one.type == "counter" else f"`{one.name}`",
            one.type,
            ", ".join(f"`{name}`" for name in labels),
            one.documentation,
        )
        for one, labels in families
    ]
    return _table(["metric", "kind", "labels", "meaning"], rows)


# --- Errors --------------------------------------------------------------------------------------


def _error_tree() -> str:
    def lines(kind: type[Exception], indent: str) -> Iterator[str]:
        children = [one for one in kind.__subclasses__() if one.__name__ in errors.__all__]
        for number, child in enumerate(children):
            last = number == len(children) - 1
            builtin = [base.__name__ for base in child.__bases__ if not issubclass(base, errors.WeirError)]
            name = f"{child.__name__} ({builtin[0]})" if builtin else child.__name__
            yield f"{indent}{'└── ' if last else '├── '}{name}"
            yield from lines(child, indent + ("    " if last else "│   "))

    return "\n".join(["```text", "WeirError", *lines(errors.WeirError, ""), "```"])


# --- The command line ----------------------------------------------------------------------------


def _commands() -> str:
    group: Any = get_command(app)
    return "\n\n".join(_command(name, command) for name, command in _leaves(group.commands, ""))


def _leaves(commands: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    """Yield every command that does something, by its whole name."""
    for name, command in commands.items():
        if hasattr(command, "commands"):
            yield from _leaves(command.commands, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def _command(name: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    usage = " ".join(["weir", name, *(one.metavar for one in arguments), "[OPTIONS]"])
    rows = [(f"`{one.metavar}`", one.help) for one in arguments]
    rows += [(_spelling(one), _meaning(one)) for one in options]
    return f"## `weir {name}`\n\n```text\n{usage}\n```\n\n{command.help}\n\n" + _table(["", "meaning"], rows)


def _spelling(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar or _choices(option)}"
    return f"`{', '.join(option.opts)}{value}`"


def _choices(option: Any) -> str:
    kind = option.type_descriptor.annotation
    return "|".join(one.value for one in kind) if issubclass(kind, Enum) else "N"


def _meaning(option: Any) -> str:
    if option.required:
        return f"{option.help} Required."
    if option.is_flag or option.default is None or not option.show_default:
        return str(option.help)
    return f"{option.help} Default: `{option.default}`."


SECTIONS: dict[str, Callable[[], str]] = {
    "public": _public,
    "functions": _functions,
    "table": lambda: _class(weir.Table),
    "maintenance": lambda: _class(weir.TableMaintenance),
    "engine": _engine,
    "arguments": _arguments,
    "indexes": _indexes,
    "inspection": lambda: "\n\n".join([_class(weir.TableInspection), _class(weir.Description, "###")]),
    "tags": lambda: "\n\n".join([_class(weir.TableTags), _class(weir.Tag, "###")]),
    "writer": lambda: _class(TableWriter),
    "reads": _reads,
    "event-store": _event_store,
    "namespaces": _namespaces,
    "spark": _spark,
    "pipeline-file": _pipeline_file,
    "pipeline": _pipeline,
    "changes": _changes,
    "results": _results,
    "writer-options": _writer_options,
    "service-options": _service_options,
    "metrics": _metrics,
    "service-metrics": _service_metrics,
    "pipeline-metrics": _pipeline_metrics,
    "error-tree": _error_tree,
    "commands": _commands,
}


def main() -> None:
    """Write the generated sections of every page anew."""
    for path in sorted(DOCS.rglob("*.md")):
        page = path.read_text(encoding="utf-8")
        path.write_text(with_sections(page), encoding="utf-8")


if __name__ == "__main__":
    main()
