"""Definitions as writes ask for them: with what they declare, and what their documents bring."""

from __future__ import annotations

from dataclasses import replace

from weir.errors import InputError
from weir.namespaces.attributes import Attribute, Kind, Metric
from weir.namespaces.definition import Definition
from weir.namespaces.documents import infer_id_kind, inferred_attributes
from weir.namespaces.names import ID, check_attribute_name
from weir.namespaces.write import Documents, Write

__all__ = ["extended", "first_definition"]


def first_definition(write: Write, most_attributes: int) -> Definition:
    """Return the definition of the namespace that a write makes.

    Raises
    ------
    InputError
        If the write does not say, or contradicts itself.
    """
    documents = write.upserts or Documents([], {})
    declared = write.declarations.get(ID)
    if declared is not None and declared.attribute is not None:
        kind = declared.attribute.type.kind
    elif len(documents):
        kind = infer_id_kind(documents.ids)
    else:
        raise InputError("an empty namespace needs the type of its ids in the schema")
    if kind is Kind.INT:
        kind = Kind.UINT
    return extended(Definition.new(kind, write.metric or Metric.COSINE), write, most_attributes)


def extended(definition: Definition, write: Write, most_attributes: int) -> Definition:
    """Return a definition with what a write says and brings; the same object if that is nothing.

    Raises
    ------
    InputError
        If that contradicts it, or the namespace would have too many attributes.
    """
    definition = _declared(definition, write)
    if write.metric is not None and write.metric != definition.metric:
        if definition.vectors:
            raise InputError(
                f"the vectors are compared by {definition.metric}, which cannot become {write.metric}"
            )
        definition = replace(definition, metric=write.metric)
    added: dict[str, Attribute] = {}
    for documents in (write.upserts, write.patches):
        if documents is not None:
            added.update(inferred_attributes(documents, definition))
    if write.patch_where is not None:
        values = {name: [value] for name, value in write.patch_where.values.items()}
        if ID in values:
            raise InputError("a patch does not change the id of a document")
        added.update(inferred_attributes(Documents([0], values), definition))
    if added:
        definition = definition.with_attributes(added)
    if len(definition.attributes) > most_attributes:
        raise InputError(
            f"a namespace has at most {most_attributes:,} attributes, this would have "
            f"{len(definition.attributes):,}"
        )
    return definition


def _declared(definition: Definition, write: Write) -> Definition:
    changed: dict[str, Attribute] = {}
    dropped = set()
    for name, declaration in write.declarations.items():
        check_attribute_name(name)
        known = definition.attributes.get(name)
        asked = declaration.attribute
        if name == ID:
            if asked is None or asked.type.kind not in (definition.id_kind, Kind.INT):
                raise InputError(f"the ids of the namespace are {definition.id_kind}, which cannot change")
            continue
        if asked is None:
            if known is not None:
                if known.type.is_vector:
                    raise InputError(f"attribute {name!r} is {known.type}, which is not dropped")
                dropped.add(name)
            continue
        if known is None:
            metric = asked.metric or (definition.metric if asked.type.is_vector else None)
            changed[name] = replace(asked, metric=metric)
            continue
        if asked.type != known.type:
            raise InputError(f"attribute {name!r} is {known.type}, which cannot become {asked.type}")
        if asked.metric is not None and known.metric is not None and asked.metric != known.metric:
            raise InputError(f"attribute {name!r} is compared by {known.metric}, which cannot change")
        merged = replace(known, **{one: getattr(asked, one) for one in declaration.says})
        if merged != known:
            changed[name] = merged
    if dropped:
        definition = definition.without_attributes(frozenset(dropped))
    return definition.with_attributes(changed) if changed else definition
