"""A sealed report opens for its key under its label; labels and posts have one encoding."""

import dataclasses
import os
import random
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from estimators import DefinitionError, define
from producers import sealing
from producers.opening import suite
from tests.support.reports.crowds import opened, public
from tests.support.rows import row

PRIVATE = "07" * 32
PUBLIC = public(PRIVATE)
LABEL = sealing.CrowdLabel(sealing.key_hash(PUBLIC), bytes(range(32)), 1_700_006_400_000, "late")
CROWD: dict[str, Any] = {"minimum": 10_000, "wait": "12h"}
DEFINITION: dict[str, Any] = {
    "name": "late", "kind": "mean", "range": (0, 1), "levels": [3], "pane": "1d", "lateness": "1d",
}  # fmt: skip


def test_the_suite_is_that_of_the_standard() -> None:
    """RFC 9180, appendix A.1.1: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM, base mode."""
    private, enc, info, key, nonce = map(
        bytes.fromhex,
        (
            "4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8",
            "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431",
            "4f6465206f6e2061204772656369616e2055726e",
            "4531685d41d65f03dc48f6b8302c05b0",
            "56d890e5accaaf011cff4b7d",
        ),
    )
    sealed = enc + AESGCM(key).encrypt(nonce, b"Beauty is truth", None)
    assert (
        suite().decrypt(sealed, sealing.read_private_key(private.hex()), info) == b"Beauty is truth"
    )


def test_a_sealed_report_opens_for_its_key_under_its_label_unchanged() -> None:
    sealed = sealing.seal(b"\x02\x01", LABEL, PUBLIC)
    assert len(sealed) == sealing.sealed_size(2)
    assert opened(sealed, LABEL, PRIVATE) == [b"\x02\x01"]
    changes: tuple[dict[str, Any], ...] = (
        {"pane_start_ms": 0},
        {"metric": "lat"},
        {"fingerprint": bytes(32)},
        {"key_hash": bytes(32)},
    )
    flips = (
        sealed[:i] + bytes([sealed[i] ^ 1 << bit]) + sealed[i + 1 :]
        for i in range(50)
        for bit in range(8)
    )
    rows = [(sealed, LABEL, "08" * 32)]
    rows += [(sealed, dataclasses.replace(LABEL, **change), PRIVATE) for change in changes]
    rows += [(changed, LABEL, PRIVATE) for changed in (b"", sealed[:31], sealed[:-1], *flips)]
    for number, given in enumerate(rows):
        with row(number):
            assert opened(*given) == []


def test_keys_are_64_digits_of_a_point_that_hides() -> None:
    assert sealing.read_public_key(PUBLIC.hex().upper()) == PUBLIC
    for bad, told in (
        ("00" * 32, "a public key of X25519"),  # everybody knows the secret that it agrees on
        ("01" + "00" * 31, "a public key of X25519"),
        (PUBLIC.hex()[:-2], "64 hexadecimal digits"),
        (PUBLIC.hex()[:-2] + " 7", "64 hexadecimal digits"),
    ):
        with row(bad), pytest.raises(ValueError, match=told):
            sealing.read_public_key(bad)


def test_everything_has_one_encoding() -> None:
    """Changed bytes are refused, or the encoding of something else."""
    source, sealed = random.Random(1), os.urandom(49)
    encodings: tuple[tuple[bytes, Callable[[bytes], bytes]], ...] = (
        (LABEL.encode(), lambda data: sealing.CrowdLabel.decode(data).encode()),
        (
            sealing.encode_post(LABEL, sealed),
            lambda data: sealing.encode_post(*sealing.decode_post(data)),
        ),
        (
            sealing.encode_crowd(bytes(16), LABEL, [sealed, sealed]),
            lambda data: sealing.encode_crowd(*sealing.decode_crowd(data)),
        ),
    )
    for encoded, again in encodings:
        assert again(encoded) == encoded
        accepted = 0
        for trial in range(2000):
            changed = bytearray(encoded)
            for _ in range(source.randint(1, 2)):
                changed[source.randrange(len(changed))] = source.choice([0, 1, 97, 128, 255])
            cut = bytes(changed[: source.choice([len(changed), source.randrange(len(changed))])])
            data = cut + bytes(source.choice([0, 0, 1, 128]))
            with row(trial, data.hex()):
                try:
                    assert again(data) == data
                    accepted += 1
                except ValueError as error:
                    assert "expected" in str(error)  # noqa: PT017
        assert accepted > 100


def test_a_post_that_was_cut_where_no_zeros_follow_is_refused() -> None:
    posts = (sealing.encode_post(LABEL, b"\1" * size) for size in range(1, 129))
    whole = next(post for post in posts if post.endswith(b"\1"))
    with pytest.raises(ValueError, match=f"body of {len(whole) - 1} bytes: expected {len(whole)}"):
        sealing.decode_post(whole[:-1])


def test_a_definition_that_no_crowd_hides_is_refused() -> None:
    define(**DEFINITION, crowd=CROWD)
    wide = {"mechanism": "rappor", "kind": "frequency", "categories": 10_000, "range": None}
    refused_changes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"levels": [1, 3]}, "one level"),
        ({"by": ["country"], "attributes": {"country": ["DE"]}}, "a crowd of its own"),
        ({"mechanism": "randomized_response", "memoized": True}, "memoized = True: expected false"),
        ({"trust": "central"}, "no crowd for kind 'mean' where trust is central"),
        ({"kind": "minimum", "rounds": 3, "split": "users"}, "no crowd for kind 'minimum'"),
        ({"max_batch_reports": 9}, "none: the service itself cuts a crowd"),
        ({"max_key_reports": 9}, "none: the service itself cuts a crowd"),
        ({"lateness": "23h"}, "lateness = '23h': expected at least 2 wait"),
        ({"crowd": CROWD | {"minimum": 99}}, "100 to 1000000"),
        ({"crowd": CROWD | {"minimum": 1_000_001}}, "100 to 1000000"),
        ({"crowd": CROWD | {"minimum": 171_197}}, "at most 171196 reports"),
        (wide, "at most 6462 reports, 1298 bytes each"),
        ({"crowd": CROWD | {"wait": "0h"}}, "wait: a duration above zero"),
        ({"crowd": CROWD | {"delta": 0}}, "delta: above 0"),
        ({"crowd": CROWD | {"delta": 0.02}}, "at most 0.01"),
        ({"crowd": CROWD | {"dishonest": 0.51}}, "a share from 0 to 0.5"),
        ({"crowd": CROWD | {"minimal": 1}}, "'minimum'?"),
        ({"crowd": {"minimum": 1000}}, "wait"),
    )
    for changed, told in refused_changes:
        definition = {k: v for k, v in (DEFINITION | {"crowd": CROWD} | changed).items() if v}
        with row(changed), pytest.raises(DefinitionError) as refused:
            define(**definition)
        assert told in str(refused.value), changed
