"""Reading the global buffers of a Lance file.

The library's own reader has been seen to wait for one without end, in a process that was reading much else.
This takes three small reads, and one more for each buffer.
"""

from __future__ import annotations

from collections.abc import Mapping

from weir.errors import CorruptionError
from weir.format import lance_file
from weir.format.buffers import Bytes
from weir.storage.interface import ObjectStore

__all__ = ["LanceFile"]


class LanceFile:
    """One file of the library.

    Parameters
    ----------
    store : ObjectStore
        The store that has it.
    path : str
        Its path there.

    Raises
    ------
    ObjectNotFoundError
        If there is no such file.
    CorruptionError
        If it does not end as a Lance file does.
    """

    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store = store
        self._path = path
        self.where = f"{store.uri}/{path}"
        size = lance_file.FOOTER_SIZE
        table = lance_file.decode_footer(store.get_range(path, -size, size), where=self.where)
        listed = store.get_range(path, table.start, table.nbytes)
        self._places = lance_file.decode_buffer_places(listed, table, where=self.where)

    def metadata(self) -> Mapping[str, bytes]:
        """Return the metadata of the file's schema."""
        return lance_file.decode_metadata(self.buffer(0), where=self.where)

    def buffer(self, number: int) -> Bytes:
        """Return a global buffer.

        Raises
        ------
        CorruptionError
            If the file does not have it.
        """
        if not 0 <= number < len(self._places):
            raise CorruptionError(
                f"the file has {len(self._places)} global buffers, and none with the number {number}",
                where=self.where,
            )
        start, size = self._places[number]
        data = self._store.get_range(self._path, start, size)
        if len(data) != size:
            raise CorruptionError(f"the file is cut off in global buffer {number}", where=self.where)
        return data
