"""Cuts a sequence into pieces of limited size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def pieces(
    items: Iterable[T], size_of: Callable[[T], int], max_size: int, max_items: int | None = None
) -> Iterator[list[T]]:
    """Yield items in order, in lists of limited total size; a larger item is alone in its list.

    `items`: the items; `size_of`: returns the size of an item; `max_size`: the largest total size
    of a list; `max_items`: the most items of a list; by default there is no limit.

    >>> [*pieces([2, 2, 3, 9, 1], int, 5)]
    [[2, 2], [3], [9], [1]]
    """
    piece: list[T] = []
    total = 0
    for item in items:
        size = size_of(item)
        if piece and (total + size > max_size or len(piece) == max_items):
            yield piece
            piece, total = [], 0
        piece.append(item)
        total += size
    if piece:
        yield piece
