"""Parsing and display of attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weir.errors import InputError, UnsupportedError
from weir.namespaces import Attribute, Declaration, Definition, FullText, Metric, parse_type
from weir.namespaces.attributes import Kind
from weir.namespaces.names import ID, check_attribute_name
from weir.service.fields import chosen, flag, known_only, mapping, number, whole
from weir.service.openapi import members
from weir.service.turbopuffer.shapes import AnnShape, AttributeShape, FullTextShape

__all__ = ["check_constants", "parse_metric", "parse_schema", "shown_schema"]

_KNOWN = members(AttributeShape)
_FULL_TEXT = members(FullTextShape)
_LANGUAGES = frozenset(
    {
        *(
            "arabic",
            "danish",
            "dutch",
            "english",
            "finnish",
            "french",
            "german",
            "greek",
            "hungarian",
            "italian",
        ),
        *("norwegian", "portuguese", "romanian", "russian", "spanish", "swedish", "tamil", "turkish"),
    }
)
_TOKENIZERS = frozenset({"word_v0", "word_v1", "word_v2", "word_v3", "word_v4"})
_SHOWN = ("glob", "regex", "fuzzy")


def parse_metric(value: object) -> Metric | None:
    """Parse a distance metric.

    Raises
    ------
    InputError
        If the value is unknown.
    """
    if value is None:
        return None
    if value not in ("cosine_distance", "euclidean_squared"):
        raise InputError("distance_metric is cosine_distance or euclidean_squared")
    return Metric(str(value))


def parse_schema(value: object) -> dict[str, Declaration]:
    """Parse attribute declarations.

    Raises
    ------
    InputError, UnsupportedError
        If it is not valid.
    """
    if value is None:
        return {}
    return {
        check_attribute_name(name): _declaration(name, one) for name, one in mapping(value, "schema").items()
    }


def _declaration(name: str, value: object) -> Declaration:
    if isinstance(value, str):
        return Declaration(Attribute(name=name, type=_type(name, value)))
    asked = mapping(value, f"the schema of attribute {name!r}")
    known_only(asked, _KNOWN, f"the schema of attribute {name!r}")
    if asked.get("drop"):
        if len(asked) > 1:
            raise InputError(f"attribute {name!r} is dropped, or declared, and not both")
        return Declaration(None)
    for feature in ("embed", "sparse_knn"):
        if asked.get(feature):
            raise UnsupportedError(f"{feature} (attribute {name!r}) is not offered")
    if "type" not in asked:
        raise InputError(f"the schema of attribute {name!r} names no type")
    type = _type(name, asked["type"])
    says = {
        one for one, key in (("filterable", "filterable"), ("full_text", "full_text_search")) if key in asked
    }
    metric = None
    if type.is_vector:
        metric = _metric(name, asked.get("ann"))
    elif asked.get("ann"):
        raise InputError(f"attribute {name!r} is {type}, and only vectors have an ann index")
    options = {one: asked[one] for one in _SHOWN if isinstance(asked.get(one), bool)}
    if options:
        says.add("options")
    if metric is not None:
        says.add("metric")
    attribute = Attribute(
        name=name,
        type=type,
        filterable=flag(asked, "filterable", True),
        full_text=_full_text(name, type, asked.get("full_text_search")),
        metric=metric,
        options=options,
    )
    return Declaration(attribute, frozenset(says))


def _type(name: str, value: object) -> Any:
    if value == "{}f16":
        raise UnsupportedError(f"sparse vectors (attribute {name!r}) are not offered")
    if isinstance(value, str) and value.startswith("[]["):
        raise UnsupportedError(
            f"several vectors in one attribute ({name!r}, late_interaction) are not offered"
        )
    try:
        return parse_type(value)
    except InputError as error:
        raise InputError(f"attribute {name!r}: {error.message}", hint=error.hint) from error


def _metric(name: str, value: object) -> Metric | None:
    if value is None or isinstance(value, bool):
        return None
    asked = mapping(value, f"ann of attribute {name!r}")
    known_only(asked, members(AnnShape), f"ann of attribute {name!r}")
    if asked.get("late_interaction"):
        raise UnsupportedError(f"late_interaction (attribute {name!r}) is not offered")
    return parse_metric(asked.get("distance_metric"))


def check_constants(k1: float, b: float) -> None:
    """Check the constants of BM25.

    Raises
    ------
    InputError
        If the constants are not valid.
    """
    if k1 < 0 or not 0 <= b <= 1:
        raise InputError("k1 is at least 0, and b from 0 to 1")


def _full_text(name: str, type: Any, value: object) -> FullText | None:
    if value is None or value is False:
        return None
    if type.kind is not Kind.STRING or type.is_vector:
        raise InputError(f"attribute {name!r} is {type}, and only texts have full_text_search")
    if value is True:
        return FullText()
    asked = mapping(value, f"full_text_search of attribute {name!r}")
    known_only(asked, _FULL_TEXT, f"full_text_search of attribute {name!r}")
    language = chosen(asked.get("language", "english"), _LANGUAGES, f"the language of attribute {name!r}")
    tokenizer = asked.get("tokenizer") or "word_v4"
    if not isinstance(tokenizer, str) or tokenizer not in _TOKENIZERS:
        raise UnsupportedError(f"the tokenizer {tokenizer!r:.40} (attribute {name!r}) is not offered")
    k1 = number(asked.get("k1", 1.2) if asked.get("k1") is not None else 1.2, "k1")
    b = number(asked.get("b", 0.75) if asked.get("b") is not None else 0.75, "b")
    check_constants(k1, b)
    return FullText(
        language=language,
        stemming=flag(asked, "stemming"),
        remove_stopwords=flag(asked, "remove_stopwords", True),
        case_sensitive=flag(asked, "case_sensitive"),
        ascii_folding=flag(asked, "ascii_folding"),
        max_token_length=whole(asked, "max_token_length", 1, 254, 39),
        k1=k1,
        b=b,
        tokenizer=str(tokenizer),
    )


def shown_schema(definition: Definition) -> Mapping[str, Any]:
    """Return the attributes of a namespace in the dialect's form."""
    shown: dict[str, Any] = {ID: {"type": str(definition.id_type)}}
    for name, one in definition.attributes.items():
        entry: dict[str, Any] = {"type": str(one.type)}
        if one.type.is_vector:
            entry["ann"] = {"distance_metric": str(one.metric or definition.metric)}
        else:
            entry["filterable"] = one.filterable
        if one.full_text is not None:
            entry["full_text_search"] = {
                "tokenizer": one.full_text.tokenizer,
                "language": one.full_text.language,
                "stemming": one.full_text.stemming,
                "remove_stopwords": one.full_text.remove_stopwords,
                "case_sensitive": one.full_text.case_sensitive,
                "ascii_folding": one.full_text.ascii_folding,
                "max_token_length": one.full_text.max_token_length,
                "k1": one.full_text.k1,
                "b": one.full_text.b,
            }
        entry.update({name: one.options[name] for name in _SHOWN if name in one.options})
        shown[name] = entry
    return shown
