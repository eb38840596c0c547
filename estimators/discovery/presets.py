"""Built-in codes, for use without examples.

Their lengths are stored; ``python -m estimators.discovery.presets FOLDER`` learns them again, from
the examples in `tests/vectors/presets/`.
"""

from __future__ import annotations

import functools
import sys
from importlib import resources
from pathlib import Path

from estimators.discovery.string_code import END_SYMBOL, SHARED_CONTEXT, StringCode

PRESET_NAMES = ("text", "url", "upper", "bytes")
"""English words; addresses of pages; capital letters and digits; anything, eight bits a byte."""


@functools.lru_cache
def preset(name: str) -> StringCode:
    """Return one of the codes of :data:`PRESET_NAMES`.

    Raises ValueError if there is none of this name.

    >>> [len(preset(name).tokens) for name in ("text", "bytes")]
    [400, 0]
    """
    if name not in PRESET_NAMES:
        raise ValueError(f"one of {', '.join(PRESET_NAMES)}")
    if (
        name == "bytes"
    ):  # END_SYMBOL and 254 bytes have 8 bits; two, which no UTF-8 contains, have 9
        return StringCode((), {SHARED_CONTEXT: (8,) * (END_SYMBOL - 2) + (9, 9, 8)})
    folder = resources.files("estimators.discovery")
    return StringCode.unpacked(folder.joinpath(f"{name}.code").read_text(encoding="ascii"))


def learn_presets(examples: Path, target: Path) -> None:
    """Write the codes of the examples in one folder to another one."""
    from estimators.discovery.learning import learn_code

    for name in PRESET_NAMES[:-1]:
        lines = (examples / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        (target / f"{name}.code").write_text(learn_code(lines).packed(), encoding="ascii")


if __name__ == "__main__":
    learn_presets(Path(sys.argv[1]), Path(__file__).parent)
