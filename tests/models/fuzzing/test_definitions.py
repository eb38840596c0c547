"""Whatever stands in metrics.toml or dither.toml, it works or gets an error that names the key."""

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.config.settings import SECTION_TYPES, in_force, load_settings, values
from aggregator.errors import SettingsError
from aggregator.secrets import HIDDEN
from estimators import DefinitionError, Metric, load_metrics
from estimators.mechanisms import MECHANISMS, mechanism_class
from estimators.metrics.loading import read_definition
from tests.support.paths import ROOT
from tests.support.reports.cases import CASES, DOMAINS, OPEN

KEYS = sorted({field.name for field in dataclasses.fields(Metric)} - {"name"})
WORDS = st.sampled_from(["", "open", "central", "1d", "-1h", "mean", "auto", *MECHANISMS])
NUMBERS = st.one_of(
    st.integers(),
    st.sampled_from([0, 1, -1, 255, 256, 2**31, 2**63, 10**30]),
    st.floats(),
    st.sampled_from([0.0, 1e-300, 1e300, 64.0, 65.0]),
)
SCALARS = st.one_of(st.booleans(), NUMBERS, WORDS, st.text(max_size=10))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
OPTIONS = st.dictionaries(
    st.sampled_from(["grid", "rows", "buckets", "seed", "size", "part", "bits", "of", "most"]),
    SCALARS,
    max_size=3,
)


E = TypeVar("E", bound=Exception)


def refusal(of: type[E], action: Callable[[], object]) -> E | None:
    """Return the error with which something was refused; any other one fails the test."""
    try:
        action()
    except of as error:
        return error
    return None


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    """Return a definition that was right until some of its keys were changed."""
    mechanism, kind = CASES[draw(st.sampled_from(sorted(CASES)))]
    domain = DOMAINS[kind] if mechanism_class(mechanism, kind).closed_vocabulary else OPEN
    if mechanism_class(mechanism, kind).discovers:
        domain = domain | {"discover": True, "preset": "bytes"}
    table = {"kind": kind, "mechanism": mechanism, "levels": [0.5, 1, 2], **domain}
    table |= draw(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=2))
    if draw(st.booleans()):
        table["options"] = draw(OPTIONS)
    return table


@pytest.mark.more
@settings(max_examples=150)
@given(table=tables())
def test_a_definition_works_or_is_refused_by_key(table: dict[str, Any]) -> None:
    error = refusal(DefinitionError, lambda: read_definition("m", table))
    if error is None:
        assert read_definition("m", table).revision == read_definition("m", table).revision
    else:
        assert error.key
        assert error.expected


def damaged(text: str) -> st.SearchStrategy[bytes]:
    """Return a file of which a stretch was overwritten."""
    whole = text.encode()
    stretch = st.tuples(st.integers(0, len(whole)), st.integers(0, 20), st.binary(max_size=20))
    return stretch.map(lambda cut: whole[: cut[0]] + cut[2] + whole[cut[0] + cut[1] :])


METRICS = (ROOT / "deploy" / "metrics.toml").read_text()
SETTINGS = """
metrics = "metrics.toml"
[kafka]
"bootstrap.servers" = "localhost:9092"
[redis]
url = "redis://localhost:6379/0"
[aggregate]
commit_interval = "1s"
[access.tokens]
"""


@settings(max_examples=100)
@given(metrics=damaged(METRICS), own=damaged(SETTINGS))
def test_a_damaged_file_works_or_is_refused_by_name(metrics: bytes, own: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        path = Path(file.name)
        cases: list[tuple[type[Exception], bytes, Callable[[], object]]] = [
            (DefinitionError, metrics, lambda: load_metrics(path)),
            (SettingsError, own, lambda: shown(str(path))),
        ]
        for of, text, read in cases:
            path.write_bytes(text)
            error = refusal(of, read)
            assert error is None or str(path) in str(error)


def shown(path: str | None, flags: dict[str, Any] | None = None) -> list[tuple[str, Any, str]]:
    return list(in_force(load_settings(path, flags, environ={})))


KNOWN = sorted({key for key, _ in values(load_settings(environ={}))} - {"metrics"})


@settings(max_examples=150)
@given(
    key=st.one_of(
        st.sampled_from(KNOWN), st.text(max_size=12), st.sampled_from(sorted(SECTION_TYPES))
    ),
    value=VALUES,
)
def test_a_setting_works_or_is_refused_with_its_key(key: str, value: Any) -> None:
    """A key that is none may be a secret, and is hidden unless it is a typing error of one."""
    error = refusal(SettingsError, lambda: shown(None, {key: value}))
    assert error is None or error.key == key or (key not in KNOWN and HIDDEN in error.key)
