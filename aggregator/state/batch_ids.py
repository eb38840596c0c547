"""The ids of the batches counted in a pane."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from aggregator.state.id_table import ID_SCRAMBLER, Bools, IdTable, Scrambled
from producers.wire.batch import BATCH_ID_BYTES

Ids = NDArray[np.void]
"""Batch ids, shape (n,), of 16 bytes each."""
ID_DTYPE = np.dtype(f"V{BATCH_ID_BYTES}")
MAX_RAW_IDS = 256
"""For at most this many ids, or new ids at a time, a table is slower than plain bytes."""


def as_ids(data: bytes | Iterable[bytes]) -> Ids:
    """Return ids as an array, from concatenated or separate bytes.

    >>> as_ids([bytes(16), b"x" * 16]).tolist()[1]
    b'xxxxxxxxxxxxxxxx'
    """
    return np.frombuffer(data if isinstance(data, bytes) else b"".join(data), dtype=ID_DTYPE)


class BatchIds:
    """An exact set of different ids.

    A few ids are stored as plain bytes, and many in an :class:`aggregator.state.id_table.IdTable`,
    because a Python set would take 150 bytes for each.
    """

    def __init__(self, ids: Iterable[bytes] = ()) -> None:
        self._raw_ids = b""
        self._table: IdTable | None = None
        self.add(as_ids(ids))

    def __len__(self) -> int:
        table_ids = 0 if self._table is None else len(self._table)
        return len(self._raw_ids) // BATCH_ID_BYTES + table_ids

    def __iter__(self) -> Iterator[bytes]:
        yield from as_ids(self._raw_ids).tolist()
        if self._table is not None:
            yield from ID_SCRAMBLER.restore(self._table.all()).tolist()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BatchIds):
            return NotImplemented
        all_ids = [as_ids(other._raw_ids)]
        if other._table is not None:
            all_ids.append(ID_SCRAMBLER.restore(other._table.all()))
        return len(self) == len(other) and all(self.contains(ids).all() for ids in all_ids)

    __hash__ = None  # type: ignore[assignment]

    @property
    def nbytes(self) -> int:
        """The memory of the ids, in bytes."""
        return len(self._raw_ids) + (0 if self._table is None else self._table.nbytes)

    def contains(self, ids: Ids) -> Bools:
        """Return which ids are in the set."""
        raw_id_set = set(as_ids(self._raw_ids).tolist())
        is_present = np.array([batch_id in raw_id_set for batch_id in ids.tolist()], dtype=np.bool_)
        if self._table is not None:
            is_present |= self._table.contains(ID_SCRAMBLER.scramble(ids))
        return is_present

    def find_repeats(self, ids: Ids) -> Bools:
        """Return which ids are in the set, or occur earlier in `ids`."""
        if ids.size > MAX_RAW_IDS:
            return self._find_many(ids)
        present_ids = set(as_ids(self._raw_ids).tolist())
        repeated = np.zeros(ids.size, dtype=np.bool_)
        for row, batch_id in enumerate(ids.tolist()):
            if batch_id in present_ids:
                repeated[row] = True
            else:
                present_ids.add(batch_id)
        if self._table is not None:
            repeated |= self._table.contains(ID_SCRAMBLER.scramble(ids))
        return repeated

    def add(self, ids: Ids) -> None:
        """Add ids, which must be distinct and not in the set."""
        if len(self._raw_ids) // BATCH_ID_BYTES + ids.size <= MAX_RAW_IDS:
            self._raw_ids += ids.tobytes()
        else:
            self._fill_table(ids, IdTable.add)

    def load(self, ids: Ids) -> None:
        """Add stored ids without checking for repeated ids; loading many at a time is faster."""
        if self._table is None and len(self._raw_ids) // BATCH_ID_BYTES + ids.size <= MAX_RAW_IDS:
            self._raw_ids += ids.tobytes()
        else:
            self._fill_table(ids, IdTable.merge)

    def _fill_table(self, ids: Ids, put: Callable[[IdTable, Scrambled], None]) -> None:
        """Put these ids, and those that are still plain bytes, into the table."""
        if self._table is None:
            self._table = IdTable()
        put(self._table, ID_SCRAMBLER.scramble(np.concatenate([as_ids(self._raw_ids), ids])))
        self._raw_ids = b""

    def has_repeats(self) -> bool:
        """Return whether an id was loaded twice."""
        raw_ids = as_ids(self._raw_ids).tolist()
        return len(set(raw_ids)) < len(raw_ids) or (
            self._table is not None and self._table.has_repeats()
        )

    def _find_many(self, ids: Ids) -> Bools:
        raw_ids = as_ids(self._raw_ids)
        all_ids = np.concatenate([raw_ids, ids])
        scrambled = ID_SCRAMBLER.scramble(all_ids)
        ranks = np.sort(scrambled.rank)
        repeated = np.zeros(ids.size, dtype=np.bool_)
        if (ranks[1:] == ranks[:-1]).any():  # very rarely, unless an id is repeated
            repeated = _repeats(all_ids)[raw_ids.size :]
        if self._table is not None:
            repeated |= self._table.contains(scrambled)[raw_ids.size :]
        return repeated


def _repeats(ids: Ids) -> Bools:
    """Return which ids occur earlier in the array."""
    _, first = np.unique(ids.view(np.uint64).reshape(-1, 2), axis=0, return_index=True)
    repeated = np.ones(ids.size, dtype=np.bool_)
    repeated[first] = False
    return repeated
