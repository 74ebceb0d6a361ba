"""Running queries on a namespace's table: each ranking by the best means the table offers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

import weir
from weir.errors import FilterError, InputError, QueryError
from weir.namespaces.attributes import Attribute
from weir.namespaces.conditions import positions_of
from weir.namespaces.definition import Definition
from weir.namespaces.filter.expression import Filter, comparisons_in
from weir.namespaces.filter.literals import identifier, literal
from weir.namespaces.filter.sql import filter_sql
from weir.namespaces.names import ID, attribute_of, column_of
from weir.namespaces.query import MOST_ROWS, Aggregate, Answer, Each, Limit, Query, State
from weir.namespaces.ranking import (
    Expression,
    Matches,
    Max,
    Nearest,
    Order,
    Product,
    Sum,
    Words,
    is_of_words,
    leaves_in,
    texts_in,
)
from weir.namespaces.scored_documents import best_of, score_documents
from weir.namespaces.scoring import Scores, check_expression, distances
from weir.namespaces.unique_groups import groups_of
from weir.namespaces.values import column_values

__all__ = ["DISTANCE", "Reading", "one_read"]

DISTANCE = "$dist"
"""What a document is ranked by: its distance, or its score."""

_EVERY_PARTITION = 100_000
_VECTORS_AT_ONCE = 1_024


def one_read(query: Query) -> bool:
    """Whether a query reads the table once, in a way that identifies the state read."""
    again = query.offset or query.limit.per or query.computed
    return isinstance(query.rank_by, Nearest | Words) and not again


class _Ranked(Protocol):
    def __call__(self, rows: int, columns: Sequence[str]) -> pa.Table: ...


class Reading:
    """The queries of one namespace, on one state of it.

    Parameters
    ----------
    table : Table
        Its table.
    definition : Definition
        What its columns mean.
    state : State
        Which state is read.
    """

    def __init__(self, table: weir.Table, definition: Definition, state: State) -> None:
        self._table = table
        self._definition = definition
        self._when = state.read_options
        self.seen = ""

    def answer(self, query: Query) -> Answer:
        """Return what a query finds.

        Raises
        ------
        InputError
            If it cannot be asked of the namespace.
        """
        sql = self._filter(query)
        try:
            if query.aggregates or query.group_by:
                return self._numbers(query, sql)
            return Answer(rows=self._documents(query, sql))
        except FilterError as error:
            raise InputError("the filter cannot be evaluated: a pattern in it is not valid") from error

    def explain(self, query: Query) -> str:
        """Return an explanation of a query as text."""
        sql = self._filter(query)
        ranking = query.rank_by
        columns = [ID]
        if isinstance(ranking, Nearest):
            plan: str = self._search(ranking, query, sql, query.limit.total, columns).explain()
            return plan
        if isinstance(ranking, Words):
            return str(self._words(_text_query(ranking), query.limit.total, columns, sql).explain())
        if ranking is not None and not isinstance(ranking, Order):
            parts = [
                self._words(_text_query(words), query.limit.total, columns, sql).explain()
                for words in texts_in(ranking)
            ]
            if not is_of_words(ranking):
                parts.append(self._table.scan(columns, filter=sql, **self._when).explain())
            return "\n".join(map(str, parts))
        return self._table.scan(columns, filter=sql, **self._when).explain()

    def vectors(self, attribute: str, filter: Filter, most: int) -> pa.FixedSizeListArray:
        """Return vectors of documents that a filter takes, whichever."""
        column = self._ranked_by(attribute).column
        sql = filter_sql(filter, self._definition.type_of, self._definition.is_filterable)
        return (
            self._table.scan([column], filter=sql, limit=most, **self._when)
            .to_table()
            .column(0)
            .combine_chunks()
        )

    def _filter(self, query: Query) -> str | None:
        definition = self._definition
        return filter_sql(query.filter, definition.type_of, definition.is_filterable)

    # ---- documents -------------------------------------------------------------------------------------

    def _documents(self, query: Query, sql: str | None) -> pa.Table:
        if query.rank_by is None:
            raise InputError("a query needs a ranking or aggregates")
        wanted = self._wanted(query)
        # The grouping attributes are needed, whether or not they are returned. An attribute that no document
        # has puts all into one group.
        per = [name for name in query.limit.per if name in self._definition.attributes or name == ID]
        also = [column for column in map(column_of, per) if column not in wanted]
        ranked = self._ranked(query, sql)
        rows = _limited(
            lambda most: ranked(most, [*wanted, *also]), query.limit, [*map(column_of, per)], query.offset
        )
        names = [*wanted, DISTANCE] if DISTANCE in rows.schema.names else wanted
        rows = rows.select(names)
        values = {name: self._computed(one, rows) for name, one in query.computed.items()}
        rows = self._named(rows, query)
        for name, column in values.items():
            if name in self._definition.attributes or name == ID:
                raise InputError(
                    f"{name!r} is an attribute of the documents, so a computed one cannot have that name"
                )
            rows = rows.append_column(name, column)
        return rows

    def _computed(self, asked: Expression | Nearest, rows: pa.Table) -> pa.Array:
        """Return what an expression, or a distance, says about documents that were found."""
        ids = rows.column(ID)
        if isinstance(asked, Nearest):
            return self._distances(asked, rows)
        found = np.zeros(rows.num_rows)
        self._check_scored(asked)
        if not rows.num_rows:
            return pa.array(found)
        values = [literal(ID, self._definition.id_type, one) for one in column_values(ids)]
        documents, scores = self._score_documents(asked, f"{identifier(ID)} IN ({', '.join(values)})")
        at = positions_of(ids, documents)
        found[at >= 0] = scores.values[at[at >= 0]]
        return pa.array(found)

    def _distances(self, asked: Nearest, rows: pa.Table) -> pa.Array:
        attribute = self._vector_of(asked)
        if not rows.num_rows:
            return pa.nulls(0, pa.float64())
        held = self._table.get(rows.select([ID]), [attribute.column], **self._when)
        column = held.column(0).combine_chunks()
        there = column.drop_null()
        vectors = there.flatten().to_numpy(zero_copy_only=False).reshape(-1, len(asked.vector))
        metric = attribute.metric or self._definition.metric
        far = np.full(rows.num_rows, np.nan)
        at = np.flatnonzero(np.asarray(column.is_valid()))
        for begin in range(0, len(at), _VECTORS_AT_ONCE):
            some = slice(begin, begin + _VECTORS_AT_ONCE)
            far[at[some]] = distances(vectors[some].astype(np.float32), asked.vector, metric)
        return pa.array(far, from_pandas=True)

    def _wanted(self, query: Query) -> list[str]:
        attributes = self._definition.attributes
        names = attributes if query.include is None else [one for one in query.include if one in attributes]
        return [
            ID,
            *dict.fromkeys(attributes[one].column for one in names if one not in query.exclude and one != ID),
        ]

    def _named(self, rows: pa.Table, query: Query) -> pa.Table:
        """Return rows with attributes as columns, including those that no document has."""
        names = [attribute_of(name) for name in rows.schema.names]
        columns = dict(zip(names, rows.columns, strict=True))
        for name in query.include or ():
            if name not in query.exclude and name not in columns:
                columns[name] = pa.chunked_array([pa.nulls(rows.num_rows)])
        return pa.table(columns)

    def _ranked(self, query: Query, sql: str | None) -> _Ranked:
        ranking = query.rank_by
        assert ranking is not None
        if isinstance(ranking, Nearest):
            return self._nearest(ranking, query, sql)
        if isinstance(ranking, Order):
            return self._ordered(ranking, sql)
        return self._scored(ranking, sql)

    def _nearest(self, ranking: Nearest, query: Query, sql: str | None) -> _Ranked:
        def found(rows: int, columns: Sequence[str]) -> pa.Table:
            search = self._search(ranking, query, sql, rows, columns)
            table = search.to_table()
            self.seen = _text_of(search.snapshot)
            return _renamed(table, "_distance")

        return found

    def _search(
        self, ranking: Nearest, query: Query, sql: str | None, rows: int, columns: Sequence[str]
    ) -> Any:
        attribute = self._vector_of(ranking)
        metric = attribute.metric or self._definition.metric
        return self._table.search(
            ranking.vector,
            rows,
            column=attribute.column,
            # A document without the vector has no distance to anything.
            filter=sql,
            columns=list(columns),
            metric=metric.of_table,
            nprobes=_EVERY_PARTITION if ranking.exact else query.nprobes,
            **self._when,
        )

    def _vector_of(self, ranking: Nearest) -> Attribute:
        attribute = self._ranked_by(ranking.attribute)
        if not attribute.type.is_vector:
            raise InputError(f"attribute {ranking.attribute!r} is {attribute.type}, not a vector")
        if len(ranking.vector) != attribute.type.dimensions:
            raise InputError(
                f"the vector has {len(ranking.vector)} dimensions, attribute {ranking.attribute!r} is "
                f"{attribute.type}"
            )
        return attribute

    def _ranked_by(self, name: str) -> Attribute:
        attribute = self._definition.attributes.get(name)
        if attribute is None:
            raise InputError(f"no document has an attribute {name!r} to rank by")
        return attribute

    def _ordered(self, ranking: Order, sql: str | None) -> _Ranked:
        terms = []
        for name, descending in ranking.by:
            column = ID if name == ID else self._ranked_by(name).column
            type = self._definition.type_of(name)
            assert type is not None
            if type.is_list or type.is_vector:
                raise InputError(f"attribute {name!r} is {type}, which has no order")
            terms.append(f"{identifier(column)} {'DESC' if descending else 'ASC'} NULLS LAST")
        if not any(name == ID for name, _ in ranking.by):
            terms.append(f"{identifier(ID)} ASC")

        def found(rows: int, columns: Sequence[str]) -> pa.Table:
            names = ", ".join(map(identifier, columns))
            where = "" if sql is None else f" WHERE {sql}"
            return self._sql(f"SELECT {names} FROM t{where} ORDER BY {', '.join(terms)} LIMIT {rows}")

        return found

    def _sql(self, query: str) -> pa.Table:
        try:
            return self._table.sql(query, **self._when).to_table()
        except QueryError as error:
            raise InputError("the filter cannot be evaluated: a pattern in it is not valid") from error

    # ---- texts -----------------------------------------------------------------------------------------

    def _scored(self, ranking: Expression, sql: str | None) -> _Ranked:
        self._check_scored(ranking)
        if not is_of_words(ranking):
            return self._scored_by_all(ranking, sql)

        def found(rows: int, columns: Sequence[str]) -> pa.Table:
            return self._scores(ranking, rows, columns, sql)

        return found

    def _scored_by_all(self, ranking: Expression, sql: str | None) -> _Ranked:
        """Rank by an expression in which there are numbers, or filters, beside words."""

        def found(rows: int, columns: Sequence[str]) -> pa.Table:
            documents, scores = self._score_documents(ranking, sql)
            best = best_of(documents, scores, rows, DISTANCE)
            if list(columns) == [ID]:
                return best
            chosen = self._table.get(best.select([ID]), list(columns), **self._when)
            return chosen.append_column(DISTANCE, best.column(DISTANCE))

        return found

    def _check_scored(self, ranking: Expression) -> None:
        for leaf in leaves_in(ranking):
            words = [leaf.attribute] if isinstance(leaf, Words) else []
            if isinstance(leaf, Matches) and leaf.is_prefix:
                words = [one.attribute for one in comparisons_in(leaf.filter)]
            for name in words:
                if self._ranked_by(name).full_text is None:
                    raise InputError(f"attribute {name!r} has no full_text_search")
        types = {name: one.type for name, one in self._definition.attributes.items()}
        check_expression(ranking, types)

    def _score_documents(self, ranking: Expression, where: str | None) -> tuple[pa.Table, Scores]:
        def words(leaf: Words) -> pa.Table:
            return self._text(_text_query(leaf), MOST_ROWS, [ID], where)

        return score_documents(ranking, self._definition, where, self._sql, words)

    def _scores(self, ranking: Expression, rows: int, columns: Sequence[str], sql: str | None) -> pa.Table:
        query = _whole_query(ranking)
        if query is not None:
            return self._text(query, rows, columns, sql)
        if isinstance(ranking, Product):
            found = self._scores(ranking.part, rows, columns, sql)
            return _scaled(found, ranking.factor)
        assert isinstance(ranking, Sum | Max)
        # The best by their best score are among the best by one of them; of a sum, any may be.
        each = rows if isinstance(ranking, Max) else MOST_ROWS
        parts = [self._scores(part, each, columns, sql) for part in ranking.parts]
        return _combined(parts, rows, np.maximum if isinstance(ranking, Max) else np.add)

    def _text(self, query: Any, rows: int, columns: Sequence[str], sql: str | None) -> pa.Table:
        try:
            search = self._words(query, rows, columns, sql)
            table = search.to_table()
            self.seen = _text_of(search.snapshot)
        except QueryError as error:
            if "has no word" not in error.message:
                raise
            schema = self._table.schema
            fields = [schema.field(name) for name in columns]
            table = pa.schema([*fields, pa.field("_score", pa.float32())]).empty_table()
        return _renamed(table, "_score")

    def _words(self, query: Any, rows: int, columns: Sequence[str], sql: str | None) -> Any:
        declared = [one for one in self._definition.attributes.values() if one.full_text is not None]
        return self._table.search_text(
            query,
            rows,
            filter=sql,
            columns=list(columns),
            bm25={one.column: (one.full_text.k1, one.full_text.b) for one in declared if one.full_text},
            **self._when,
        )

    # ---- numbers ---------------------------------------------------------------------------------------

    def _numbers(self, query: Query, sql: str | None) -> Answer:
        if query.rank_by is not None:
            raise InputError("a query either ranks documents or aggregates them")
        if not query.aggregates:
            raise InputError("group_by needs aggregates")
        labels = list(query.aggregates)
        numbers = [
            f"{self._aggregate(one)} AS `%number{at}`" for at, one in enumerate(query.aggregates.values())
        ]
        where = "" if sql is None else f" WHERE {sql}"
        if any(isinstance(one, Each) for one in query.group_by):
            return self._groups_of_each(query, where)
        group_by = [one for one in query.group_by if isinstance(one, str)]
        keys = [name for name in group_by if self._definition.type_of(name) is not None]
        for name in keys:
            self._check_grouped(name)
        names = [identifier(column_of(name)) for name in keys]
        if not query.group_by:
            row = self._sql(f"SELECT {', '.join(numbers)} FROM t{where}").to_pylist()[0]
            return Answer(aggregates={label: _told(row[f"%number{at}"]) for at, label in enumerate(labels)})
        order = "".join(f"{name} ASC NULLS LAST, " for name in names).rstrip(", ")
        # By what no document has there is one group, or none.
        grouped = f" GROUP BY {', '.join(names)} ORDER BY {order}" if names else " HAVING count(*) > 0"
        found = self._sql(
            f"SELECT {', '.join([*names, *numbers])} FROM t{where}{grouped} LIMIT {query.limit.total}"
        )
        columns = {name: column_values(found.column(column_of(name))) for name in keys}
        groups = [
            {
                **{name: columns[name][at] if name in columns else None for name in group_by},
                **{label: _told(found.column(f"%number{n}")[at].as_py()) for n, label in enumerate(labels)},
            }
            for at in range(found.num_rows)
        ]
        return Answer(groups=groups)

    def _check_grouped(self, name: str) -> None:
        type = self._definition.type_of(name)
        if type is not None and type.is_vector:
            raise InputError(f"attribute {name!r} is {type}: documents cannot be grouped by it")

    def _groups_of_each(self, query: Query, where: str) -> Answer:
        """Return the aggregates of groups, some of them by list elements."""
        type_of = self._definition.type_of
        lists, keys = {}, []
        for one in query.group_by:
            name = one.attribute if isinstance(one, Each) else one
            type = type_of(name)
            if isinstance(one, Each) and type is not None:
                if not type.is_list:
                    raise InputError(f"attribute {name!r} is {type}: ForEachUnique takes lists")
                lists[one.name] = column_of(name)
                keys.append(one.name)
            elif isinstance(one, Each):
                return Answer(groups=[])  # no document has any element
            elif type is not None:
                self._check_grouped(name)
                keys.append(column_of(name))
        numbers = []
        for number in query.aggregates.values():
            self._aggregate(number)
            is_there = number.attribute is not None and type_of(number.attribute) is not None
            if number.attribute is not None and not is_there:
                raise InputError(f"no document has an attribute {number.attribute!r} to aggregate")
            numbers.append((number, column_of(number.attribute) if number.attribute is not None else None))
        needed = [ID, *lists.values(), *[key for key in keys if key not in lists]]
        needed += [column for _, column in numbers if column is not None]
        names = ", ".join(identifier(name) for name in dict.fromkeys(needed))
        found = groups_of(self._sql(f"SELECT {names} FROM t{where}"), keys, lists, numbers, query.limit.total)
        columns = {key: column_values(found.column(key)) for key in keys}
        told = {label: found.column(f"%number{at}").to_pylist() for at, label in enumerate(query.aggregates)}
        groups = []
        for row in range(found.num_rows):
            group = {}
            for one in query.group_by:
                name = one.name if isinstance(one, Each) else one
                column = name if isinstance(one, Each) else column_of(name)
                group[name] = columns[column][row] if column in columns else None
            groups.append({**group, **{label: _told(values[row]) for label, values in told.items()}})
        return Answer(groups=groups)

    def _aggregate(self, one: Aggregate) -> str:
        if one.attribute is None:
            return "count(*)"
        type = self._definition.type_of(one.attribute)
        if type is None:
            return "0 * count(*)"
        column = identifier(column_of(one.attribute))
        if one.function == "count":
            return f"count({column})"
        if type.is_list or type.is_vector or type.kind not in ("int", "uint", "float"):
            raise InputError(f"attribute {one.attribute!r} is {type}, which has no sum")
        # A sum of whole numbers of 64 bits may have more of them.
        return f"coalesce(sum({column if type.kind == 'float' else f'CAST({column} AS DECIMAL(38, 0))'}), 0)"


def _told(number: object) -> object:
    """Return a number of an aggregate as JSON has it."""
    return int(number) if isinstance(number, Decimal) else number


@lru_cache(maxsize=128)
def _text_of(token: Hashable) -> str:
    """Return the text of a token: what is not written meanwhile has the same one."""
    return str(token)


def _renamed(rows: pa.Table, scored: str) -> pa.Table:
    """Return rows with the ranking value under one name, without those that cannot be ranked."""
    names = [DISTANCE if name == scored else name for name in rows.schema.names]
    rows = rows.rename_columns(names)
    at = names.index(DISTANCE)
    column = rows.column(at)
    if column.null_count:
        rows = rows.filter(column.is_valid())
    return rows


def _limited(ranked: Callable[[int], pa.Table], limit: Limit, per: Sequence[str], offset: int) -> pa.Table:
    """Return the first rows, with at most a number of equal ones."""
    wanted = offset + limit.total
    if not limit.most_per or not limit.per:
        return _after(ranked, ranked(wanted), offset).slice(0, limit.total)
    looked_at = max(wanted, MOST_ROWS)
    most = min(max(4 * wanted, 100), looked_at)
    while True:
        rows = ranked(most)
        chosen = _first_of_alike(rows, per, limit.most_per)
        if len(chosen) >= wanted or rows.num_rows < most or most == looked_at:
            return rows.take(pa.array(chosen[offset:wanted], pa.int64()))
        most = min(4 * most, looked_at)


def _after(ranked: Callable[[int], pa.Table], rows: pa.Table, offset: int) -> pa.Table:
    """Return rows after an offset, which must be consistent with the rows before it."""
    if offset and rows.num_rows > offset and DISTANCE in rows.schema.names:
        last, next_ = rows.column(DISTANCE)[offset - 1 : offset + 1].to_pylist()
        if last == next_:
            # Among ties, a larger limit may return other rows first, so all ties are ordered by id.
            before = positions_of(rows.column(ID), ranked(offset).select([ID])) >= 0
            return rows.filter(pa.array(~before))
    return rows.slice(offset)


def _first_of_alike(rows: pa.Table, per: Sequence[str], most: int) -> list[int]:
    seen: dict[Any, int] = {}
    chosen = []
    keys = zip(*[column_values(rows.column(name)) for name in per], strict=True)
    for at, key in enumerate(keys if per else [()] * rows.num_rows):
        held = tuple(tuple(value) if isinstance(value, list) else value for value in key)
        seen[held] = seen.get(held, 0) + 1
        if seen[held] <= most:
            chosen.append(at)
    return chosen


def _scaled(rows: pa.Table, factor: float) -> pa.Table:
    at = rows.schema.get_field_index(DISTANCE)
    scores = rows.column(at).to_numpy().astype(np.float64) * factor
    return rows.set_column(at, DISTANCE, pa.array(scores))


def _combined(parts: list[pa.Table], rows: int, how: Any) -> pa.Table:
    """Return the best of several rankings by their combined scores, equal ones in the order of their ids."""
    at = parts[0].schema.get_field_index(DISTANCE)
    wide = [
        part.set_column(at, DISTANCE, part.column(at).cast(pa.float64())).unify_dictionaries()
        for part in parts
    ]
    every = pa.concat_tables([part.drop_columns([DISTANCE]) for part in wide])
    first = positions_of(every.column(ID), every)
    unique = np.unique(first)
    scores = np.zeros(every.num_rows)
    begin = 0
    for part in wide:
        where = first[begin : begin + part.num_rows]
        scores[where] = how(scores[where], part.column(DISTANCE).to_numpy())
        begin += part.num_rows
    found = every.take(pa.array(unique)).append_column(DISTANCE, pa.array(scores[unique]))
    return found.sort_by([(DISTANCE, "descending"), (ID, "ascending")]).slice(0, rows)


def _text_query(words: Words, boost: float = 1.0) -> weir.MatchQuery:
    return weir.MatchQuery(words.query, column_of(words.attribute), boost=boost)


def _whole_query(ranking: Expression, boost: float = 1.0) -> Any:
    """Return a ranking as one query of a table; None if it cannot be one."""
    if isinstance(ranking, Words):
        return _text_query(ranking, boost)
    if isinstance(ranking, Product):
        return _whole_query(ranking.part, boost * ranking.factor)
    assert isinstance(ranking, Sum | Max)
    parts = [_whole_query(part, boost) for part in ranking.parts]
    if None in parts:
        return None
    if isinstance(ranking, Sum):
        return weir.BooleanQuery(should=parts)
    matches = {part.column: part for part in parts if isinstance(part, weir.MatchQuery)}
    same = {part.query for part in matches.values()}
    if len(same) == 1 and len(matches) == len(parts):
        boosts = [part.boost for part in matches.values()]
        return weir.MultiMatchQuery(next(iter(same)), [str(name) for name in matches], boosts=boosts)
    return None
