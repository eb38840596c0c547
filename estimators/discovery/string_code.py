"""A prefix code of strings: devices report prefixes of its code words.

A string is split into symbols: tokens (byte strings that the code names) where one fits, the
longest first, otherwise single bytes; an end symbol comes last. The bits of a symbol depend on the
last byte before it, its context. No string's bits are the beginning of another string's bits.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import json
import re
import unicodedata
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from estimators.exact.randomness import Words

CODE_BITS = 128
"""The bits of a code word that are kept: a longer one is cut off, a shorter one ends in zeros."""
END_SYMBOL = 256
"""The number of the symbol that ends a string; tokens come after it."""
START_CONTEXT = 256
"""The context of the first symbol; other contexts are bytes."""
SHARED_CONTEXT = -1
"""The table of all contexts without a table of their own."""
MOST_TOKENS, LONGEST_TOKEN, LONGEST_CODE = 400, 32, 64
LARGEST_TEXT = 1 << 20
"""The most bytes of an unpacked code."""
PRESET_NAMES = ("text", "url", "upper", "bytes")
"""For English words; web addresses; capital letters and digits; anything, at 8 bits a byte."""

Lengths = Mapping[int, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class StringCode:
    """A prefix code of strings, given by its tokens and the lengths of its symbols' bits.

    `tokens`: at most 400, each of 2 to 32 bytes. The token i is the symbol 257 + i; `lengths`: the
    number of bits of each symbol, for each context with a table of its own (a byte, or
    :data:`START_CONTEXT`) and for :data:`SHARED_CONTEXT`. The bits are those of the canonical
    Huffman code: ascending in length, then in the symbol.

    Raises ValueError if these are not the lengths of complete prefix codes.

    >>> code = preset("upper")
    >>> bits, length = code.encode("N725MQ")
    >>> length < 48, code.decode(bits)
    (True, 'N725MQ')
    """

    tokens: tuple[bytes, ...]
    lengths: Lengths

    def __post_init__(self) -> None:
        fits = all(2 <= len(token) <= LONGEST_TOKEN for token in self.tokens)
        if not fits or len(set(self.tokens)) < len(self.tokens) or len(self.tokens) > MOST_TOKENS:
            raise ValueError(f"expected at most {MOST_TOKENS} tokens, of 2 to 32 bytes, each once")
        if SHARED_CONTEXT not in self.lengths:
            raise ValueError("expected a table for contexts without one of their own")
        for context, lengths in self.lengths.items():
            kraft_sum = sum(1 << (LONGEST_CODE - n) for n in lengths if 0 < n <= LONGEST_CODE)
            if (
                not SHARED_CONTEXT <= context <= START_CONTEXT
                or len(lengths) != END_SYMBOL + 1 + len(self.tokens)
                or min(lengths) < 1
                or max(lengths) > LONGEST_CODE
                or kraft_sum != 1 << LONGEST_CODE
            ):
                raise ValueError(f"expected the lengths of a complete code in context {context}")

    @functools.cached_property
    def canonical(self) -> str:
        """The code as one line of JSON, the same for equal codes."""
        document = {
            "lengths": {str(c): bytes(n).hex() for c, n in sorted(self.lengths.items())},
            "tokens": [token.hex() for token in self.tokens],
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    @functools.cached_property
    def digest(self) -> str:
        """The SHA-256 of the canonical form, in hexadecimal digits."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()

    def packed(self) -> str:
        """Return the code as printable text, for definitions."""
        return base64.b64encode(zlib.compress(self.canonical.encode(), 9)).decode()

    @classmethod
    def unpacked(cls, text: str) -> Self:
        """Return the code in a printable text; raise ValueError if there is none."""
        try:
            unpacking = zlib.decompressobj()
            raw = unpacking.decompress(base64.b64decode(text, validate=True), LARGEST_TEXT)
            document = json.loads(raw)
            tokens = tuple(bytes.fromhex(token) for token in document["tokens"])
            lengths = {int(c): tuple(bytes.fromhex(n)) for c, n in document["lengths"].items()}
        except (zlib.error, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ValueError("expected a code as `dither define --examples` prints it") from None
        return cls(tokens, lengths)

    # -- Strings to bits ----------------------------------------------------------------------

    @functools.cached_property
    def _symbols(self) -> tuple[re.Pattern[bytes], dict[bytes, int]]:
        """The pattern that splits bytes into symbols (longest token first), and their numbers."""
        longest = sorted(self.tokens, key=len, reverse=True)
        pattern = re.compile(b"|".join([*map(re.escape, longest), b"."]), re.DOTALL)
        numbers = {bytes([byte]): byte for byte in range(256)}
        return pattern, numbers | {token: END_SYMBOL + 1 + i for i, token in enumerate(self.tokens)}

    @functools.cached_property
    def codes(self) -> dict[int, tuple[list[int], list[int]]]:
        """For each table, two lists by symbol: its bits as a number, and how many bits it has."""
        codes_by_context = {}
        for context, lengths in self.lengths.items():
            bits, code, last_length = [0] * len(lengths), 0, 0
            for symbol in sorted(range(len(lengths)), key=lambda s: (lengths[s], s)):
                code <<= lengths[symbol] - last_length
                bits[symbol], last_length = code, lengths[symbol]
                code += 1
            codes_by_context[context] = bits, list(lengths)
        return codes_by_context

    @functools.cached_property
    def last_bytes(self) -> list[int]:
        """The last byte of each symbol; 256 for END_SYMBOL, which has no byte."""
        return [*range(256), END_SYMBOL, *(token[-1] for token in self.tokens)]

    def split(self, encoded: bytes) -> list[int]:
        """Return the symbols of some bytes, and END_SYMBOL."""
        pattern, numbers = self._symbols
        return [*(numbers[part] for part in pattern.findall(encoded)), END_SYMBOL]

    def encode(self, text: str) -> tuple[int, int]:
        """Return the first 128 bits of a string's code word, zeros after its end, and its length.

        A length above 128 is a lower bound. `text` is in Unicode's normal form C: see
        :func:`normal_form`. Raises ValueError if it cannot be written in UTF-8.
        """
        # a symbol has at least one bit and at most 32 bytes: no more can matter
        encoded = text.encode()[: LONGEST_TOKEN * (CODE_BITS + 1)]
        bits = length = 0
        context = START_CONTEXT
        for symbol in self.split(encoded):
            codes, lengths = self.codes.get(context) or self.codes[SHARED_CONTEXT]
            bits = bits << lengths[symbol] | codes[symbol]
            length += lengths[symbol]
            context = self.last_bytes[symbol]
            if length > CODE_BITS:
                break
        return bits << CODE_BITS >> length, length

    # -- Bits to strings ----------------------------------------------------------------------

    @functools.cached_property
    def _trees(self) -> dict[int, dict[tuple[int, int], int]]:
        return {
            context: {(n, bits): s for s, (bits, n) in enumerate(zip(*table, strict=True))}
            for context, table in self.codes.items()
        }

    def decode(self, bits: int) -> str | None:
        """Return the string whose code word is in these 128 bits, followed by zeros.

        None if the bits have no end symbol, are not UTF-8, or are not what a device sends, because
        splitting the string gives other symbols.

        >>> preset("bytes").decode((1 << 128) - 1) is None
        True
        """
        decoded, at, context = b"", 0, START_CONTEXT
        while True:
            tree = self._trees.get(context) or self._trees[SHARED_CONTEXT]
            length, symbol = 0, None
            while symbol is None:
                length += 1
                if at + length > CODE_BITS:
                    return None
                word = bits >> (CODE_BITS - at - length) & ((1 << length) - 1)
                symbol = tree.get((length, word))
            at += length
            if symbol == END_SYMBOL:
                break
            decoded += (
                bytes([symbol]) if symbol < END_SYMBOL else self.tokens[symbol - END_SYMBOL - 1]
            )
            context = decoded[-1]
        try:
            text = decoded.decode()
        except UnicodeDecodeError:
            return None
        return text if normal_form(text) == text and self.encode(text) == (bits, at) else None

    @functools.cached_property
    def automaton(self) -> NDArray[np.int32]:
        """The next state after a 0 and a 1, int32 of shape (states, 2).

        State 0 is that of strings that have ended, state 1 that of impossible bits, state 2 the
        start. Others are positions within a symbol's code word.
        """
        follow: list[list[int]] = [[0, 1], [1, 1]]
        roots = {}
        for context in (START_CONTEXT, *sorted(c for c in self.codes if c != START_CONTEXT)):
            roots[context] = len(follow)
            follow.append([1, 1])
        if START_CONTEXT not in self.codes:
            roots[START_CONTEXT] = roots[SHARED_CONTEXT]
            follow[2] = follow[roots[SHARED_CONTEXT]]  # the start has the shared table
        for context, (bits, lengths) in self.codes.items():
            for symbol, (word, length) in enumerate(zip(bits, lengths, strict=True)):
                state = roots[context]
                for position in range(length - 1, 0, -1):
                    bit = word >> position & 1
                    if follow[state][bit] == 1:
                        follow[state][bit] = len(follow)
                        follow.append([1, 1])
                    state = follow[state][bit]
                last = self.last_bytes[symbol]
                follow[state][word & 1] = (
                    0 if symbol == END_SYMBOL else roots.get(last, roots[SHARED_CONTEXT])
                )
        return np.array(follow, dtype=np.int32)

    def steps(self, states: NDArray[np.int32], bits: int) -> NDArray[np.int32]:
        """Return the states that follow each state after each word of `bits` bits.

        `states`, shape (n,). The result has shape (n, 2^bits): words ascend, their first bit is the
        highest.
        """
        next_states = states[:, None]
        for _ in range(bits):
            next_states = self.automaton[next_states].reshape(len(states), -1)
        return next_states


@functools.lru_cache
def preset(name: str) -> StringCode:
    """Return one of the codes of :data:`PRESET_NAMES`.

    They are stored as ``learn_code(lines).packed()``, for the lines of examples in
    `tests/vectors/presets/`. Raises ValueError if no code has this name.

    >>> [len(preset(name).tokens) for name in ("text", "bytes")]
    [400, 0]
    """
    if name not in PRESET_NAMES:
        raise ValueError(f"one of {', '.join(PRESET_NAMES)}")
    if name == "bytes":  # 254 bytes and the end have 8 bits; 2 bytes, never in UTF-8, have 9
        return StringCode((), {SHARED_CONTEXT: (8,) * (END_SYMBOL - 2) + (9, 9, 8)})
    file = Path(__file__).with_name(f"{name}.code")
    return StringCode.unpacked(file.read_text(encoding="ascii"))


@functools.lru_cache(maxsize=2**16)
def normal_form(text: str) -> str:
    """Return a string in Unicode's normal form C, in which devices report it."""
    return unicodedata.normalize("NFC", text)


def as_words(bits: list[int]) -> Words:
    """Return numbers of 128 bits as rows of two words, the first 64 bits first."""
    rows = [(number >> 64, number & (2**64 - 1)) for number in bits]
    return np.array(rows, dtype=np.uint64).reshape(len(bits), 2)
