"""The code of strings: reversible, complete, and the same wherever it is learnt."""

import base64
import itertools
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators import DefinitionError, define
from estimators.discovery.learning import find_tokens, learn_code, make_code
from estimators.discovery.string_code import (
    CODE_BITS,
    PRESET_NAMES,
    SHARED_CONTEXT,
    StringCode,
    normal_form,
    preset,
)
from tests.support.paths import ROOT
from tests.support.rows import row

EXAMPLES = ROOT / "tests" / "vectors" / "presets"
every_preset = pytest.mark.parametrize("name", PRESET_NAMES)
DIGESTS = {
    "text": "47324ce808376297",
    "url": "6e67513d334b55af",
    "upper": "80baf6aaa7721d9f",
    "bytes": "2e0213302eef2c11",
}
texts = st.text(max_size=12) | st.text(alphabet="abcdeN12/.- ", max_size=30)


@every_preset
@settings(max_examples=100)
@given(text=texts)
def test_a_string_comes_back_and_the_automaton_ends_where_it_does(name: str, text: str) -> None:
    code, held = preset(name), normal_form(text)
    bits, length = code.encode(held)
    assert 0 <= bits < 1 << CODE_BITS
    assert code.decode(bits) == (held if length <= CODE_BITS else None)
    state = 2
    for place in range(min(length, CODE_BITS)):
        assert state > 1
        state = int(code.automaton[state, bits >> (CODE_BITS - 1 - place) & 1])
    assert (state == 0) == (length <= CODE_BITS)


@every_preset
@settings(max_examples=100)
@given(bits=st.integers(0, 2**CODE_BITS - 1), cut=st.integers(0, CODE_BITS))
def test_bits_that_no_string_encodes_to_are_no_string(name: str, bits: int, cut: int) -> None:
    code, padded = preset(name), bits >> cut << cut
    text = code.decode(padded)
    assert text is None or code.encode(text)[0] == padded


def test_a_string_that_would_be_split_otherwise_is_no_candidate() -> None:
    """The token "the" has a code word; its three letters have another one, which nobody sends."""
    code = make_code([b"the"] * 3 + [b"t", b"h", b"e"], (b"the",))
    assert code.split(b"the") == [257, 256]
    by_letter, length = 0, 0
    for symbol, context in ((116, 256), (104, 116), (101, 104), (256, 101)):
        words, lengths = code.codes.get(context) or code.codes[SHARED_CONTEXT]
        by_letter = by_letter << lengths[symbol] | words[symbol]
        length += lengths[symbol]
    assert code.decode(by_letter << (CODE_BITS - length)) is None
    assert code.decode(code.encode("the")[0]) == "the"


def test_text_that_is_not_in_normal_form_or_no_text_is_no_candidate() -> None:
    code = preset("bytes")
    assert code.decode(code.encode("e\u0301")[0]) is None
    assert code.decode(code.encode("\u00e9")[0]) == "\u00e9"
    latin = (0xE9 << 8 | code.codes[SHARED_CONTEXT][0][256]) << (CODE_BITS - 16)
    assert code.decode(latin) is None


def test_steps_are_those_of_the_automaton_and_codes_can_be_printed_and_read() -> None:
    for name in PRESET_NAMES:
        code = preset(name)
        assert code.automaton[0].tolist() == [0, 1]
        assert code.automaton[1].tolist() == [1, 1]
        after = code.steps(code.automaton[2], 3)
        for first, word in itertools.product((0, 1), range(8)):
            state = int(code.automaton[2, first])
            for bit in (word >> 2 & 1, word >> 1 & 1, word & 1):
                state = int(code.automaton[state, bit])
            assert after[first, word] == state
        again = StringCode.unpacked(code.packed())
        assert (again, again.digest) == (code, code.digest)
        assert len(code.packed()) < 2**14


def test_what_is_no_code_is_refused() -> None:
    packed = ("[" * 400_000, '{"a":' * 100_000, "[]", '{"tokens":[1]}')
    texts = [base64.b64encode(zlib.compress(text.encode())).decode() for text in packed]
    for text in ("", "nonsense", "eJwDAAAAAAE=", "e30=", *texts):
        with row(text[:30]), pytest.raises(ValueError, match="expected a code as `dither define"):
            StringCode.unpacked(text)
    with pytest.raises(ValueError, match="complete"):
        StringCode((), {SHARED_CONTEXT: (9,) * 257})
    with pytest.raises(ValueError, match="tokens"):
        StringCode((b"ab", b"ab"), {SHARED_CONTEXT: (8,) * 259})
    with pytest.raises(ValueError, match="without one"):
        StringCode((), {})


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(one, marks=pytest.mark.slow if one == "url" else ())
        for one in PRESET_NAMES[:-1]
    ],
)
def test_a_preset_is_what_its_examples_teach(name: str) -> None:
    lines = (EXAMPLES / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    assert learn_code(lines).digest == preset(name).digest


def test_the_presets_never_change() -> None:
    """A change would be another revision of every metric that uses one."""
    assert {name: preset(name).digest[:16] for name in PRESET_NAMES} == DIGESTS


def test_tokens_are_the_commonest_pairs() -> None:
    assert find_tokens([b"abab", b"ab", b"xabc"], 2) == (b"ab",)
    assert find_tokens([b"aaaa", b"aaaa"], 5) == (b"aa", b"aaaa")
    assert find_tokens([b"ab"], 5) == ()


def test_few_examples_are_enough_and_what_no_code_can_be_learnt_from_is_refused() -> None:
    for few in (["x"], ["", "\u00e9"]):
        assert learn_code(few).encode("x")[1] > 0
    with pytest.raises(ValueError, match="examples"):
        learn_code([])
    keys: dict[str, Any] = {"kind": "frequency", "categories": "open", "discover": True}
    for examples, told in (
        (["x" * 4097], "at most 4096 bytes an example, found 4097 in 'xxx"),
        ([f"{i:04096}" for i in range(1025)], "at most 4194304 bytes of examples, found 4198400"),
        (["\ud800"], "Unicode text, found '\\ud800'"),
    ):
        with row(told):
            with pytest.raises(DefinitionError) as refused:
                define(name="m", examples=examples, levels=[1], **keys)
            assert refused.value.expected.startswith(told)
