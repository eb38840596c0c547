"""Built-in codes, for use without examples.

They are stored as text: ``learn_code(lines).packed()``, for lines of examples that are in
`tests/vectors/presets/`.
"""

from __future__ import annotations

import functools
from pathlib import Path

from estimators.discovery.string_code import END_SYMBOL, SHARED_CONTEXT, StringCode

PRESET_NAMES = ("text", "url", "upper", "bytes")
"""For English words; web addresses; capital letters and digits; anything, at 8 bits a byte."""


@functools.lru_cache
def preset(name: str) -> StringCode:
    """Return one of the codes of :data:`PRESET_NAMES`.

    Raises ValueError if no code has this name.

    >>> [len(preset(name).tokens) for name in ("text", "bytes")]
    [400, 0]
    """
    if name not in PRESET_NAMES:
        raise ValueError(f"one of {', '.join(PRESET_NAMES)}")
    if name == "bytes":  # 254 bytes and the end have 8 bits; 2 bytes, never in UTF-8, have 9
        return StringCode((), {SHARED_CONTEXT: (8,) * (END_SYMBOL - 2) + (9, 9, 8)})
    file = Path(__file__).with_name(f"{name}.code")
    return StringCode.unpacked(file.read_text(encoding="ascii"))
