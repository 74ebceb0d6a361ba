"""Searching the rows of the base table that its full-text index covers.

Lance's index yields candidates by its own scores, which are scored again; since the difference of the two
scores is bounded, it is known when no other row can be among the best.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.table import BaseTable
from weir.errors import FilterError
from weir.lsm.damage import reading
from weir.lsm.deletion_mask import DeletionMask
from weir.lsm.rows_by_id import take_row_ids
from weir.schema.vectors import is_vector
from weir.search.text.index import text_index
from weir.search.text.lance_query import for_lance
from weir.search.text.match import score, words_of
from weir.search.text.query import TextQuery
from weir.search.text.task import SCORE, Question, Scores, TextCandidates, least_of_best
from weir.search.text.tokenizer import AskedTexts

__all__ = ["IndexTextTask"]

_ROW_ID = "_rowid"
_SPARE_ROWS = 10
_MORE = 4
_MOST_CANDIDATES = 4_096


@dataclass(frozen=True, slots=True)
class IndexTextTask:
    """Search the rows of the base table that its full-text index covers.

    Parameters
    ----------
    base : BaseTable
        The base table.
    fragments : frozenset of int
        Its fragments that are covered.
    question : Question
        The query.
    query : TextQuery
        The query as it was passed, with its columns.
    mask : DeletionMask
        Rows that are dead: replaced or deleted by newer ones.
    rows : int
        Rows of the base table.
    excess, shortfall : float
        By what Lance's score of a row may have to be multiplied, at most and at least, to be the row's score.
        The least is 0 if unknown.
    """

    base: BaseTable = field(repr=False)
    fragments: frozenset[int] = field(repr=False)
    question: Question = field(repr=False)
    query: TextQuery
    mask: DeletionMask = field(repr=False)
    rows: int
    excess: float
    shortfall: float

    @property
    def _first_limit(self) -> int:
        """How many rows to ask Lance for first."""
        share = 0.0 if self._passes_over else len(self.mask) / max(self.rows, 1)
        return int((self.question.k + _SPARE_ROWS) / (1 - share)) + 1

    @property
    def _passes_over(self) -> bool:
        # Lance takes longer to pass over many rows than to find a few more, which are then dropped.
        return 2 * len(self.mask) > self.rows

    @property
    def _at_once(self) -> bool:
        """Whether the columns of the result are read with the texts."""
        schema = self.base.schema
        return not any(is_vector(schema.field(name).type) for name in self.question.columns)

    def _ask(self, limit: int, *, passing_over: bool) -> pa.Table:
        """Return the ids of the rows that are best by Lance's scores, and these.

        Parameters
        ----------
        passing_over : bool
            Whether Lance is to leave out the rows that are dead.
        """
        base, filter = self.base, self.question.filter
        try:
            return self._asked(limit, filter, self.mask if passing_over else None)
        except FilterError:
            if filter is None:
                raise
            # For the best rows Lance evaluates a filter on dead and on deleted ones too, told of them or not.
            with reading(f"base table version {base.version}", base.uri, filter):
                others = self.mask.with_others_than(base.dataset, filter)
            return self._asked(limit, None, others)

    def _asked(self, limit: int, filter: str | None, mask: DeletionMask | None) -> pa.Table:
        base = self.base
        with reading(f"base table version {base.version}", base.uri, filter):
            return base.dataset.scanner(
                columns=[SCORE],
                full_text_query=for_lance(self.query, self.question.tokenizers),
                filter=filter,
                prefilter=filter is not None,
                limit=limit,
                fast_search=True,
                with_row_id=True,
                row_addr_blocklist=None if mask is None else mask.serialized,
                disable_scoring_autoprojection=True,
            ).to_table()

    def best(self, others: Scores) -> TextCandidates:
        """Return the best live rows."""
        k, limit, passing_over = self.question.k, self._first_limit, self._passes_over
        while True:
            asked = self._ask(limit, passing_over=passing_over)
            row_ids = self._possible(asked, others)
            table = self._read(row_ids)
            scores, rows = self._scored(table)
            if asked.num_rows < limit:
                break
            least = least_of_best(np.concatenate([scores, others]), k)
            if self.excess * asked.column(SCORE).to_numpy().min() <= least:
                break
            if len(row_ids) > max(_MOST_CANDIDATES, k) and least > -np.inf:
                # More texts would take too long to read.
                break
            # The best by Lance's scores may all be dead.
            passing_over = passing_over or limit > _MOST_CANDIDATES
            limit *= _MORE
        best = np.lexsort((row_ids[rows], -scores))[:k]
        chosen = pa.array(rows[best])
        columns = table.select(list(self.question.columns)).take(chosen) if self._at_once else None
        return TextCandidates(scores[best], row_ids[rows[best]], columns)

    def _possible(self, asked: pa.Table, others: Scores) -> npt.NDArray[np.int64]:
        """Return the live rows that may be among the best: reading texts takes most of the time."""
        row_ids = asked.column(_ROW_ID).to_numpy()
        keep = ~self.mask.contains(row_ids)
        # Lance finds more where one column's index covers what another's does not, and where Weir reads texts
        # in place of what an index says of them.
        known = (text_index(self.base, column, self.fragments) for column in self.question.tokenizers)
        keep &= np.logical_or.reduce([index.knows(row_ids) for index in known])
        scores = asked.column(SCORE).to_numpy()[keep]
        least = least_of_best(np.concatenate([self.shortfall * scores, others]), self.question.k)
        possible: npt.NDArray[np.int64] = row_ids[keep][self.excess * scores >= least].astype(np.int64)
        # In the order in which they are read.
        possible.sort()
        return possible

    def _read(self, row_ids: npt.NDArray[np.int64]) -> pa.Table:
        """Return the texts of some rows, and the columns of the result if they can be read along."""
        columns = dict.fromkeys(
            [*self.question.tokenizers, *(self.question.columns if self._at_once else ())]
        )
        with reading(f"base table version {self.base.version}", self.base.uri):
            return take_row_ids(self.base.dataset, row_ids, list(columns))

    def _scored(self, table: pa.Table) -> tuple[Scores, npt.NDArray[np.int64]]:
        question = self.question
        texts = {
            column: AskedTexts(
                table.column(column).combine_chunks(), question.tokenizers[column], sorted(words)
            )
            for column, words in words_of(question.node).items()
        }
        scores, found = score(question.node, texts, question.statistics)
        rows = np.flatnonzero(found)
        return scores[rows].astype(np.float32), rows

    def fetch(self, found: TextCandidates, chosen: npt.NDArray[np.int64]) -> pa.Table:
        """Return the columns of the result of some candidates."""
        if found.table is not None:
            return found.table.take(pa.array(chosen))
        with reading(f"base table version {self.base.version}", self.base.uri):
            return take_row_ids(self.base.dataset, found.rows[chosen], self.question.columns)

    def describe(self) -> str:
        """Return one line for people."""
        where = f" where {self.question.filter}" if self.question.filter else ""
        return (
            f"base table version {self.base.version}: full-text index of "
            f"{', '.join(self.question.tokenizers)}{where}, candidates by scores that may be "
            f"{self.excess:.4f} times as high, {len(self.mask)} rows superseded or deleted"
        )
