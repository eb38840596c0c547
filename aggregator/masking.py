"""Which settings are secrets, and how they are hidden wherever settings are shown."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

SECRET = re.compile(
    r"password|passphrase|secret|\.key$|key\.pem|sasl\.oauthbearer|jaas", re.IGNORECASE
)
"""Names of librdkafka's properties, and of a Redis URL's parameters, whose values are secrets."""

HIDDEN = "***"
USERINFO = re.compile(r"(?<=://)([^:@/?#\s]*):(\S*)@")
"""Up to the last @: a password that should have been percent-encoded is hidden whole."""
PARAMETER = re.compile(r"(?<=[?&])([^=&#\s]+)=([^&#\s]*)")
HASHED_TOKEN = re.compile(r"sha256:[0-9a-f]{64}(?: (?:read|report|admin))+")
"""What is kept of an access token, and its scopes."""


def masked(key: str, value: Any) -> Any:
    """Hide a secret: a password in a URL, or the whole of a secret property.

    Of an access token its hash is no secret; what stands there instead of one may be the token.

    Examples
    --------
    >>> masked("redis.url", "redis://app:hunter2@db:6379/0"), masked("kafka.sasl.password", "x")
    ('redis://app:***@db:6379/0', '***')
    >>> masked("redis.url", "rediss://db/0?ssl_ca_certs=/ca.pem&ssl_p%61ssword=hunter2")
    'rediss://db/0?ssl_ca_certs=/ca.pem&ssl_p%61ssword=***'
    """
    if SECRET.search(key):
        return HIDDEN
    if key.startswith("access.tokens."):
        return value if isinstance(value, str) and HASHED_TOKEN.fullmatch(value) else HIDDEN
    if isinstance(value, list):
        return [masked(key, item) for item in value]
    return without_passwords(value) if isinstance(value, str) else value


def without_passwords(text: str) -> str:
    """Hide the passwords of URLs in a text, before the host and in parameters."""
    return PARAMETER.sub(_parameter, USERINFO.sub(rf"\1:{HIDDEN}@", text))


def is_secret(key: str, value: Any) -> bool:
    """Return whether a setting has something that :func:`masked` hides.

    Examples
    --------
    >>> is_secret("kafka.sasl.password", "x"), is_secret("redis.url", "redis://db")
    (True, False)
    """
    return bool(masked(key, value) != value)


def _parameter(found: re.Match[str]) -> str:
    hides = SECRET.search(unquote(found[1]))
    return f"{found[1]}={HIDDEN if hides else found[2]}"
