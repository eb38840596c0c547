"""Opens a crowd's sealed reports: ``python -m producers.opening``, in a separate process.

Opening a crowd takes seconds of processor time; a thread of the gateway that did so would delay the
posts of devices. The process imports only what it needs, because it is started for each crowd.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.hpke import Suite

KEY_BYTES = 32
LOWER_PRIORITY = 5
"""The process's niceness: the gateway's other work has priority."""


@functools.cache
def suite() -> Suite:
    """Return the HPKE suite of sealed reports.

    Raises ModuleNotFoundError if the extra `crowds` is not installed.
    """
    try:
        from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "reports for a crowd are sealed with cryptography 47 or later, which is not installed: "
            "pip install 'dither[crowds]'",
            name=error.name,
        ) from None
    return Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


def open_each(private_key: bytes, info: bytes, sealed: bytes, size: int) -> Iterator[bytes]:
    """Yield the reports that can be opened.

    Parameters
    ----------
    private_key : bytes
        The private key, of 32 bytes.
    info : bytes
        The bytes to which each report was bound when it was sealed.
    sealed : bytes
        The sealed reports, concatenated.
    size : int
        The number of bytes of a sealed report.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    key, decrypt = X25519PrivateKey.from_private_bytes(private_key), suite().decrypt
    for start in range(0, len(sealed), size):
        try:
            yield decrypt(sealed[start : start + size], key, info)
        except (InvalidTag, ValueError):
            continue


def main() -> None:
    """Read a private key, the size of a sealed report, info and reports; write the opened reports.

    It reads from standard input and writes to standard output. The reports are sorted by their
    bytes, so that nothing remains of their order in the crowd.
    """
    os.nice(LOWER_PRIORITY)
    read = sys.stdin.buffer.read
    private_key, size, info_bytes = read(KEY_BYTES), int.from_bytes(read(4)), read(4)
    info = read(int.from_bytes(info_bytes))
    sys.stdout.buffer.write(b"".join(sorted(open_each(private_key, info, read(), size))))


if __name__ == "__main__":
    main()
