"""Learns a code of strings from public examples: tokens, contexts and Huffman's code words.

The frequency from which a string can be found grows with the square root of the length of its code
word, so a code that fits the strings is worth having. Examples are published with the definition:
they must not be anybody's private data. All numbers are exact integers.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from estimators.discovery import string_code

TOKEN_COUNTS = (0, 100, 400)
"""The numbers of tokens that a code may have."""
LEAST_SEEN = 50
"""A context that occurs at least this often in the examples gets its own table."""
MOST_EXAMPLES = 100_000
LONGEST_EXAMPLE, MOST_BYTES = 4_096, 2**22
"""The most bytes of one example, and of all examples; learning from so many takes a minute."""


def learn_code(examples: Sequence[str]) -> string_code.StringCode:
    """Return the code that fits examples; it depends only on the examples and their order.

    `examples`: at least one. Tokens are found by merging the commonest pair of neighbours
    repeatedly (byte-pair encoding; Gage, 1994). There are 0, 100 or 400 of them: the number whose
    code, learnt from one half of the examples, is shortest on the other half. Code words are
    Huffman's (1952). Raises ValueError for no examples, too many or too long ones, or text that is
    not Unicode.

    >>> code = learn_code(["N101AA", "N102AA", "N103UW", "N104UW", "N725MQ"])
    >>> code.encode("N105UW")[1] < 8 * 6
    True
    """
    distinct = list(dict.fromkeys(map(_bytes, examples)))
    if not 1 <= len(distinct) <= MOST_EXAMPLES:
        raise ValueError(f"expected 1 to {MOST_EXAMPLES} distinct examples, found {len(distinct)}")
    if (size := sum(map(len, distinct))) > MOST_BYTES:
        raise ValueError(f"expected at most {MOST_BYTES} bytes of examples, found {size}")
    half, held_out = distinct[::2], distinct[1::2]
    merged = find_tokens(half, TOKEN_COUNTS[-1])
    best = min(TOKEN_COUNTS, key=lambda size: code_length(make_code(half, merged[:size]), held_out))
    return make_code(distinct, find_tokens(distinct, best))


def _bytes(text: str) -> bytes:
    try:
        encoded = string_code.normal_form(text).encode()
    except UnicodeEncodeError:
        raise ValueError(f"expected Unicode text, found {text[:80]!r}") from None
    if len(encoded) > LONGEST_EXAMPLE:
        raise ValueError(
            f"expected at most {LONGEST_EXAMPLE} bytes an example, found {len(encoded)} in "
            f"{text[:80]!r}..."
        )
    return encoded


def code_length(code: string_code.StringCode, strings: Sequence[bytes]) -> int:
    """Return the total number of bits of the strings' code words."""
    total = 0
    for data in strings:
        context = string_code.START_CONTEXT
        for symbol in code.split(data):
            lengths = code.lengths.get(context) or code.lengths[string_code.SHARED_CONTEXT]
            total += lengths[symbol]
            context = code.last_bytes[symbol]
    return total


def find_tokens(strings: Sequence[bytes], size: int) -> tuple[bytes, ...]:
    """Return up to `size` tokens, each the commonest remaining pair of neighbours.

    A pair that occurs only once is not a token. Of equally common pairs the least one is taken.
    """
    parts = [[bytes([byte]) for byte in data] for data in strings]
    counts: Counter[tuple[bytes, bytes]] = Counter()
    strings_by_pair: dict[tuple[bytes, bytes], set[int]] = {}
    for index, split in enumerate(parts):
        for pair in pairwise(split):
            counts[pair] += 1
            strings_by_pair.setdefault(pair, set()).add(index)
    heap = [(-count, pair) for pair, count in counts.items()]
    heapq.heapify(heap)
    tokens: dict[bytes, None] = {}
    while heap and len(tokens) < size:
        negative, pair = heapq.heappop(heap)
        count = counts[pair]
        if count != -negative:  # an old entry: the pair has become rarer or commoner since
            if count > 1:
                heapq.heappush(heap, (-count, pair))
            continue
        token = pair[0] + pair[1]
        if count < 2:
            break
        if len(token) > string_code.LONGEST_TOKEN:
            continue
        tokens[token] = None
        changed: set[tuple[bytes, bytes]] = set()
        for index in sorted(strings_by_pair.pop(pair)):
            old, new = parts[index], _merged(parts[index], pair, token)
            for neighbours in pairwise(old):
                counts[neighbours] -= 1
            for neighbours in pairwise(new):
                counts[neighbours] += 1
                strings_by_pair.setdefault(neighbours, set()).add(index)
                changed.add(neighbours)
            parts[index] = new
        for neighbours in changed:
            heapq.heappush(heap, (-counts[neighbours], neighbours))
    return tuple(tokens)


def _merged(tokens: list[bytes], pair: tuple[bytes, bytes], token: bytes) -> list[bytes]:
    merged, i = [], 0
    while i < len(tokens):
        if i + 1 < len(tokens) and tokens[i] == pair[0] and tokens[i + 1] == pair[1]:
            merged.append(token)
            i += 2
        else:
            merged.append(tokens[i])
            i += 1
    return merged


def make_code(strings: Sequence[bytes], tokens: Sequence[bytes]) -> string_code.StringCode:
    """Return the code with these tokens and with Huffman's lengths for these strings."""
    symbols = string_code.END_SYMBOL + 1 + len(tokens)
    flat = string_code.StringCode(
        tuple(tokens), {string_code.SHARED_CONTEXT: _huffman([1] * symbols)}
    )
    context_counts: dict[int, Counter[int]] = {}
    for data in strings:
        context = string_code.START_CONTEXT
        for symbol in flat.split(data):
            context_counts.setdefault(context, Counter())[symbol] += 1
            context = flat.last_bytes[symbol]
    counts = Counter[int]()
    for counts_there in context_counts.values():
        counts.update(counts_there)
    total = symbols + counts.total()
    base = [1000 * (1 + counts[s]) + _floor(s, total) for s in range(symbols)]
    lengths = {string_code.SHARED_CONTEXT: _huffman(base)}
    base_total = sum(base)
    for context, counts_there in sorted(context_counts.items()):
        if counts_there.total() >= LEAST_SEEN:
            weights = [
                1 + 1000 * counts_there[s] + 64_000 * base[s] // base_total for s in range(symbols)
            ]
            lengths[context] = _huffman(weights)
    return string_code.StringCode(tuple(tokens), lengths)


def _floor(symbol: int, total: int) -> int:
    """Return the part of a symbol's weight that does not depend on how often it occurs."""
    if symbol >= string_code.END_SYMBOL:
        return 0
    return 50 * total // 95 if 32 <= symbol <= 126 else 20 * total // 161


def _huffman(weights: Sequence[int]) -> tuple[int, ...]:
    """Return the lengths of Huffman's code words; ties go to the older symbol.

    Raises ValueError if a code word would be longer than 64 bits.
    """
    heap: list[tuple[int, int, tuple[int, ...]]]
    heap = [(weight, i, (i,)) for i, weight in enumerate(weights)]
    heapq.heapify(heap)
    lengths, created = [0] * len(weights), len(weights)
    while len(heap) > 1:
        (a, _, first), (b, _, second) = heapq.heappop(heap), heapq.heappop(heap)
        for symbol in (*first, *second):
            lengths[symbol] += 1
        heapq.heappush(heap, (a + b, created, first + second))
        created += 1
    if max(lengths) > string_code.LONGEST_CODE:
        raise ValueError(f"a code word of {max(lengths)} bits: expected fewer examples")
    return tuple(lengths)
