"""Bearer tokens, and the hashes by which the settings name them."""

from __future__ import annotations

import hashlib
import secrets

BEARER_PREFIX = "dither_"
TOKEN_BYTES = 32


def new_token() -> str:
    """Return a token of 256 random bits."""
    return BEARER_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)


def hash_token(token: str) -> str:
    """Return the hash of a token; a fast hash suffices for 256 random bits.

    Examples
    --------
    >>> hash_token("dither_x")[:20]
    'sha256:5df3dc6fc2041'
    """
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"
