"""The parts of the merged view without a full-text index, with the words of their texts in memory.

These are the generations and the log (:mod:`weir.search.text.levels`), and the fragments that merges have
added to the base table since its index was made. Their texts never change, so the words are kept in the
process cache.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.table import BaseTable
from weir.engine.cache import ByteBudgetCache
from weir.lsm.damage import reading
from weir.lsm.deletion_mask import DeletionMask
from weir.search.text.index import TextIndex
from weir.search.text.tokenizer import HeldTexts, TextRows, Tokenizer

__all__ = ["FragmentPart", "TextPart", "Totals", "fragment_parts", "totals"]

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Totals:
    """How many texts have words, and how many words there are."""

    documents: int
    words: int


class TextPart(Protocol):
    """Rows with their words. It can be pickled."""

    @property
    def sources(self) -> Iterator[tuple[str, Mask]]:
        """For people: the name of each source, and per row whether it counts."""
        ...

    @property
    def live(self) -> Mask:
        """Per row: whether it counts."""
        ...

    def texts(self, column: str, tokenizer: Tokenizer) -> HeldTexts:
        """Return the words of a column."""
        ...

    def matching(self, filter: str | None) -> Mask:
        """Return, per row, whether it counts and a filter lets it pass."""
        ...

    def take(self, rows: Rows, columns: Sequence[str]) -> pa.Table:
        """Return some rows, by their offset, which ascends."""
        ...

    @property
    def decided_by(self) -> Hashable:
        """What the rows and ``live`` follow from, for caches."""
        ...


@dataclass(frozen=True, slots=True)
class FragmentPart:
    """A fragment of the base table that the full-text index does not cover.

    Parameters
    ----------
    base : BaseTable
        The base table.
    number : int
        The fragment.
    mask : DeletionMask
        Rows of the base table that are dead.
    masked_by : tuple
        Identities of the sources that these follow from.
    """

    base: BaseTable
    number: int
    mask: DeletionMask = field(repr=False)
    masked_by: tuple[Hashable, ...] = field(repr=False)

    @property
    def label(self) -> str:
        """Name for people."""
        return f"base table version {self.base.version}, fragment {self.number}"

    @property
    def sources(self) -> Iterator[tuple[str, Mask]]:
        """For people: the name of the source, and per row whether it counts."""
        yield self.label, self.live

    @property
    def decided_by(self) -> Hashable:
        """What the rows and ``live`` follow from, for caches."""
        return (self.base.namespace, self.base.version_key, self.number, self.masked_by)

    @property
    def _fragment(self) -> lance.LanceFragment:
        fragment = self.base.dataset.get_fragment(self.number)
        assert fragment is not None
        return fragment

    @property
    def _content(self) -> Hashable:
        """Its files: a fragment of the same files has the same rows in every version."""
        metadata = self._fragment.metadata
        return (tuple(file.path for file in metadata.files), str(metadata.deletion_file))

    @property
    def row_ids(self) -> npt.NDArray[np.uint64]:
        """The row id of every row."""
        return self.base.engine.cache.get_or_load(
            ("row ids", self.base.namespace, self._content),
            lambda: self._scan([]).column("_rowid").to_numpy(),
            lambda loaded: loaded.nbytes,
        )

    @property
    def live(self) -> Mask:
        """Per row: whether it counts."""
        return self.base.engine.cache.get_or_load(
            ("live", self.decided_by),
            lambda: ~np.isin(self.row_ids, self.mask.row_ids),
            lambda loaded: loaded.nbytes,
        )

    def texts(self, column: str, tokenizer: Tokenizer) -> HeldTexts:
        """Return the words of a column."""
        # By its id: the same files may show another column under this name in the next version.
        return self.base.engine.cache.get_or_load(
            ("texts", self.base.namespace, self._content, self.base.field_ids[column], tokenizer),
            lambda: TextRows(self._scan([column]).column(column).combine_chunks(), tokenizer),
            lambda loaded: loaded.nbytes,
        )

    def matching(self, filter: str | None) -> Mask:
        """Return, per row, whether it counts and a filter lets it pass."""
        if filter is None:
            return self.live
        found = self._scan([], filter).column("_rowid").to_numpy()
        return np.isin(self.row_ids, found)

    def take(self, rows: Rows, columns: Sequence[str]) -> pa.Table:
        """Return some rows, by their offset, which ascends."""
        with reading(self.label, self.base.uri):
            return self.base.dataset._take_rows(self.row_ids[rows].tolist(), columns=list(columns))

    def _scan(self, columns: list[str], filter: str | None = None) -> pa.Table:
        with reading(self.label, self.base.uri, filter):
            return self.base.dataset.scanner(
                columns=columns,
                filter=filter,
                fragments=[self._fragment],
                with_row_id=True,
                scan_in_order=True,
                row_addr_blocklist=None if filter is None else self.mask.serialized,
            ).to_table()


def totals(cache: ByteBudgetCache, texts: HeldTexts, counted: Mask, decided_by: Hashable) -> Totals:
    """Return how many of some texts have words, and how many words those have."""

    def add() -> Totals:
        lengths = texts.lengths[counted]
        return Totals(int(np.count_nonzero(lengths)), int(lengths.sum()))

    return cache.get_or_load(("totals", decided_by), add, lambda _: 64)


def fragment_parts(
    base: BaseTable,
    indexes: Mapping[str, TextIndex],
    mask: DeletionMask,
    masked_by: tuple[Hashable, ...],
) -> list[FragmentPart]:
    """Return the fragments of the base table that some of the indexes do not cover."""
    covered = frozenset.intersection(*(index.fragments for index in indexes.values()))
    numbers = sorted(fragment.fragment_id for fragment in base.dataset.get_fragments())
    return [FragmentPart(base, number, mask, masked_by) for number in numbers if number not in covered]
