"""What a compressed body may be: one member or frame, whole, within its bound."""

from __future__ import annotations

import gzip
import random
import sys
import tracemalloc
from collections.abc import Callable

import pytest

from producers.gateway.encodings import expand
from producers.gateway.problems import Problem

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstd.compress}
MOST = 240_000


@pytest.mark.parametrize("encoding", COMPRESS)
def test_a_body_comes_back_up_to_its_bound(encoding: str) -> None:
    rng, compress = random.Random(1), COMPRESS[encoding]
    for size in (0, 1, 1000, MOST):
        body = rng.randbytes(size // 2) + bytes(size - size // 2)
        assert expand(encoding, compress(body), MOST) == body
    with pytest.raises(Problem, match="expands to more than 240000 bytes") as refused:
        expand(encoding, compress(bytes(MOST + 1)), MOST)
    assert refused.value.status == 413


@pytest.mark.parametrize("encoding", COMPRESS)
def test_a_bomb_is_refused_in_little_memory(encoding: str) -> None:
    bomb = COMPRESS[encoding](bytes(20_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(Problem, match="expands to more"):
            expand(encoding, bomb, MOST)
        assert tracemalloc.get_traced_memory()[1] < 4 * MOST
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("encoding", COMPRESS)
def test_what_is_cut_off_damaged_or_followed_by_something_is_refused(encoding: str) -> None:
    whole = COMPRESS[encoding](b"reports" * 100)
    for size in range(len(whole)):
        with pytest.raises(Problem, match="not in") as refused:
            expand(encoding, whole[:size], MOST)
        assert refused.value.status == 400
    for rest in (b"\0", whole):
        with pytest.raises(Problem, match="bytes follow its end"):
            expand(encoding, whole + rest, MOST)
    with pytest.raises(Problem, match="not in"):
        expand(encoding, b"\0" + whole, MOST)


def test_a_frame_with_a_large_window_is_refused() -> None:
    def framed(window_log: int) -> bytes:
        options = {int(zstd.CompressionParameter.window_log): window_log}
        compressor = zstd.ZstdCompressor(options=options)
        return compressor.compress(b"reports") + compressor.flush()

    assert expand("zstd", framed(23), MOST) == b"reports"
    with pytest.raises(Problem, match="too much memory"):
        expand("zstd", framed(24), MOST)
