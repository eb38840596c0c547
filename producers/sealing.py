"""Sealed reports, which only the holder of the service's private key can open, not the relay.

A report is sealed by HPKE in base mode (RFC 9180): DHKEM(X25519, HKDF-SHA256), HKDF-SHA256,
AES-128-GCM. Its label is bound to it: another label does not open it. docs/crowds.md has the
protocol.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from estimators.metrics.crowd import MAX_CROWD_BYTES as MAX_CROWD_BYTES
from estimators.metrics.crowd import SEAL_BYTES
from estimators.metrics.validation import check_name
from producers.opening import suite

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

HASH_BYTES, CROWD_ID_BYTES = 32, 16
POST_MULTIPLE = 128
"""The length of a post is a multiple of this."""
LABEL_VERSION = 1
_LABEL_HEAD = struct.Struct(">B32s32sqH")
_INFO_PREFIX = b"dither sealed report 1\0"


@dataclasses.dataclass(frozen=True)
class CrowdLabel:
    """The facts that a relay knows about a sealed report; a crowd's reports have the same label.

    Parameters
    ----------
    key_hash : bytes
        The hash of the service's public key, from :func:`key_hash`.
    fingerprint : bytes
        The fingerprint of the metric's definition.
    pane_start_ms : int
        The start of the report's pane, in ms since the epoch.
    metric : str
        The metric's name.

    Raises
    ------
    ValueError
        If a field is invalid; the message names it.

    Examples
    --------
    >>> label = CrowdLabel(bytes(32), bytes(32), 0, "late")
    >>> len(label.encode()), CrowdLabel.decode(label.encode()) == label
    (79, True)
    """

    key_hash: bytes
    fingerprint: bytes
    pane_start_ms: int
    metric: str

    def __post_init__(self) -> None:
        if not 0 <= self.pane_start_ms < 2**63:
            raise ValueError(f"pane_start_ms = {self.pane_start_ms}: expected 0 to 2^63 - 1")
        try:
            check_name(self.metric)
        except ValueError as error:
            raise ValueError(f"metric = {self.metric!r:.100}: expected {error}") from None

    def encode(self) -> bytes:
        """Return the label's canonical encoding: equal labels have equal bytes."""
        name = self.metric.encode()
        head = (LABEL_VERSION, self.key_hash, self.fingerprint, self.pane_start_ms, len(name))
        return _LABEL_HEAD.pack(*head) + name

    @classmethod
    @lru_cache(maxsize=256)
    def decode(cls, data: bytes) -> CrowdLabel:
        """Return the label from its encoding.

        Results are cached, because most posts to a relay have one of a few labels. Raises
        ValueError, which names the invalid field, if this is not the encoding of a label.
        """
        if len(data) < _LABEL_HEAD.size:
            raise ValueError(f"label of {len(data)} bytes: expected {_LABEL_HEAD.size} or more")
        version, key, fingerprint, pane_start_ms, length = _LABEL_HEAD.unpack_from(data)
        name = data[_LABEL_HEAD.size :]
        if (version, length) != (LABEL_VERSION, len(name)):
            raise ValueError(
                f"label of version {version} with a metric of {length} bytes: expected "
                f"{LABEL_VERSION}, and {len(name)} bytes"
            )
        return cls(key, fingerprint, pane_start_ms, name.decode(errors="replace"))


def key_hash(public_key: bytes) -> bytes:
    """Return the hash of a public key of 32 bytes, by which labels name the key."""
    return hashlib.sha256(public_key).digest()


def sealed_size(width: int) -> int:
    """Return how many bytes a sealed report has if the report itself has `width` bytes."""
    return width + SEAL_BYTES


def label_info(label: CrowdLabel) -> bytes:
    """Return HPKE's `info`, by which a label is bound to a sealed report."""
    return _INFO_PREFIX + label.encode()


def seal(report: bytes, label: CrowdLabel, public_key: bytes) -> bytes:
    """Return the sealed report; only the private key opens it, and only with this label.

    `report`: the randomized report, as in `ReportBatch.values`; `label`: the label, which is bound
    to the report; `public_key`: the service's key, of 32 bytes.

    Raises
    ------
    ValueError
        If the key is invalid.
    ModuleNotFoundError
        If the extra `crowds` is not installed.
    """
    encrypt = suite().encrypt
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    return encrypt(report, X25519PublicKey.from_public_bytes(public_key), label_info(label))


def read_private_key(hex_digits: str) -> X25519PrivateKey:
    """Return the private key with these 64 hexadecimal digits; raise ValueError if invalid."""
    suite()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(_key_bytes(hex_digits, "private key"))


def read_public_key(hex_digits: str) -> bytes:
    """Return a public key from its 64 hexadecimal digits.

    Raises
    ------
    ValueError
        If this is not a public key, or a weak key, with which anybody could open sealed reports.
    ModuleNotFoundError
        If the extra `crowds` is not installed.
    """
    key = _key_bytes(hex_digits, "key")
    try:
        seal(b"", CrowdLabel(key_hash(key), bytes(HASH_BYTES), 0, "trial"), key)
    except ValueError:
        raise ValueError(f"key = {hex_digits!r}: expected a public key of X25519") from None
    return key


def _key_bytes(hex_digits: str, name: str) -> bytes:
    if not (isinstance(hex_digits, str) and re.fullmatch("[0-9a-fA-F]{64}", hex_digits)):
        length = len(str(hex_digits))  # it may be a private key
        raise ValueError(f"{name} of {length} characters: expected 64 hexadecimal digits")
    return bytes.fromhex(hex_digits)


# -- Posts ----------------------------------------------------------------------------------------


def encode_post(label: CrowdLabel, sealed: bytes) -> bytes:
    """Return a device's post to a relay; its length is the same for all values of a metric."""
    body = _prefixed(label.encode()) + _prefixed(sealed)
    return body + bytes(-len(body) % POST_MULTIPLE)


def decode_post(body: bytes) -> tuple[CrowdLabel, bytes]:
    """Return the label and the sealed report of a device's post.

    Raises ValueError unless the bytes are those that :func:`encode_post` writes for some label and
    report.
    """
    encoded, offset = _prefixed_at(body, 0, "label")
    sealed, end = _prefixed_at(body, offset, "sealed report")
    label = CrowdLabel.decode(encoded)
    if body[end:] != bytes(-end % POST_MULTIPLE):
        multiple = f"a multiple of {POST_MULTIPLE}"
        raise ValueError(f"post of {len(body)} bytes: expected zeros at its end, up to {multiple}")
    return label, sealed


def encode_crowd(crowd_id: bytes, label: CrowdLabel, reports: Sequence[bytes]) -> bytes:
    """Return the body of a relay's post: a crowd, or a part of it.

    `crowd_id`: the id of the crowd or part, 16 bytes; `label`: the label of all reports; `reports`:
    sealed reports of the same length.
    """
    head = crowd_id + _prefixed(label.encode()) + struct.pack(">I", len(reports))
    return b"".join([head, *reports])


def decode_crowd(body: bytes) -> tuple[bytes, CrowdLabel, list[bytes]]:
    """Return the id, the label and the sealed reports of a relay's post.

    Raises ValueError unless the bytes are those that :func:`encode_crowd` writes for some reports.
    """
    encoded, offset = _prefixed_at(body, CROWD_ID_BYTES, "label")
    label = CrowdLabel.decode(encoded)
    first = offset + 4
    count = int.from_bytes(body[offset:first], "big")
    sealed_bytes = len(body) - first
    if not count or sealed_bytes < count * SEAL_BYTES or sealed_bytes % count:
        raise ValueError(
            f"{count} reports in {max(0, sealed_bytes)} bytes: expected equal lengths of at least "
            f"{SEAL_BYTES} bytes"
        )
    length = sealed_bytes // count
    reports = [body[i : i + length] for i in range(first, len(body), length)]
    return body[:CROWD_ID_BYTES], label, reports


def _prefixed(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data


def _prefixed_at(body: bytes, offset: int, name: str) -> tuple[bytes, int]:
    """Return the bytes that follow their length at an offset, and the offset at which they end."""
    first = offset + 2
    end = first + int.from_bytes(body[offset:first], "big")
    if end > len(body) or first > len(body):
        raise ValueError(f"body of {len(body)} bytes: expected {end} or more, for its {name}")
    return body[first:end], end
