"""``DITHER_<SECTION>_<KEY>`` variables as settings.

``DITHER_<SECTION>_<KEY>_FILE`` is the path of a file with the value, such as a mounted secret.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from aggregator.errors import SettingsError
from aggregator.secrets import HIDDEN

VARIABLE_PREFIX = "DITHER_"
FILE_SUFFIX = "_FILE"
KAFKA_FILES = (
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.jwt.template.file",
    "sasl.oauthbearer.assertion.private.key.file",
)
"""Properties of librdkafka whose variables end in _FILE although they are values themselves."""
NAMES_FILE = re.compile(r"metrics|serve\.tls_\w+|gateway\.crowd_keys|kafka\..*\.location")
"""Settings whose values are paths."""
KAFKA_LIKELY = ("bootstrap.servers", "sasl.username", "sasl.password", "security.protocol")
LINK_VARIABLE = re.compile(
    r"\w*(_SERVICE_HOST|_SERVICE_PORT(_\w+)?|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
LINK_ADDRESS = re.compile(r"(tcp|udp|sctp)://")
"""Kubernetes sets variables that look like settings, as it names them after each service."""
QUOTED_VALUE = re.compile(r"(['\"]).*\1", re.DOTALL)
"""Some programs, such as docker, read the quotes in a file of variables as part of the value."""
OTHER_VARIABLES = re.compile(r"DITHER_(TEST_\w*|REQUIRE_REAL|CONFIG)")
MIN_SIMILARITY = 0.8
"""A variable whose name is this similar to a setting's is taken for a typing error."""


Variable = tuple[str, str, str]
"""A variable's name, its setting's dotted key, and the value."""


def variables(environ: Mapping[str, str], keys: Mapping[str, list[str]]) -> Iterator[Variable]:
    """Yield the settings in environment variables.

    `environ`: the environment variables; `keys`: the allowed keys of each section; [kafka] may have
    any key, and [access] any token. Raises SettingsError if a variable seems mistyped, has
    a quoted value, is set twice, or names a file that cannot be used.
    """
    for name, text in sorted(environ.items()):
        if not name.startswith(VARIABLE_PREFIX) or _belongs_to_others(name, text):
            continue
        key = _setting_of(name, keys)
        if key is None:
            _refuse_mistyped(name, keys)
        elif name.endswith(FILE_SUFFIX) and key.removeprefix("kafka.") not in KAFKA_FILES:
            setting = _setting_of(name.removesuffix(FILE_SUFFIX), keys) or key
            yield name, setting, _from_file(name, text, setting, environ)
        elif QUOTED_VALUE.fullmatch(text):
            expected = f"a value without the quotes around it, or {name}_FILE if they belong to it"
            raise SettingsError(name, HIDDEN, expected, "environment")
        else:
            yield name, key, text


def _setting_of(name: str, keys: Mapping[str, list[str]]) -> str | None:
    """Return the dotted key of a variable's setting; None if its section is unknown."""
    section, _, key = name.removeprefix(VARIABLE_PREFIX).lower().partition("_")
    if section == "metrics" and key in ("", "file"):
        return section
    if section == "kafka":
        return f"kafka.{key.replace('_', '.')}"
    if section == "access" and key.startswith("tokens_"):
        return f"access.tokens.{key.removeprefix('tokens_')}"
    return f"{section}.{key}" if section in keys else None


def _belongs_to_others(name: str, text: str) -> bool:
    is_link = name.endswith("_PORT") and LINK_ADDRESS.match(text)
    return bool(is_link or OTHER_VARIABLES.fullmatch(name) or LINK_VARIABLE.fullmatch(name))


def _refuse_mistyped(name: str, keys: Mapping[str, list[str]]) -> None:
    """Raise SettingsError if a variable's name resembles a setting's: it may be mistyped."""
    names = [f"{section}_{key}" for section in keys for key in keys[section]]
    names += [f"kafka_{key.replace('.', '_')}" for key in KAFKA_LIKELY]
    names += [*keys, "kafka", "metrics"]
    known_names = [f"{VARIABLE_PREFIX}{name}".upper() for name in names]
    setting = name.removesuffix(FILE_SUFFIX)
    section = "_".join(setting.split("_")[:2])
    similar_names = difflib.get_close_matches(setting, known_names, n=1, cutoff=MIN_SIMILARITY) or [
        f"{match}_..."
        for match in difflib.get_close_matches(section, known_names, n=1, cutoff=MIN_SIMILARITY)
    ]
    key = setting.removeprefix(VARIABLE_PREFIX)
    sections = [section for section in keys if key.lower() in keys[section]]
    bare = [f"{VARIABLE_PREFIX}{section}_{key}".upper() for section in sections]
    short = [full for full in known_names if full.endswith(f"_{key}")]
    if guess := " or ".join(bare) or "".join([*short, *similar_names][:1]):
        expected = f"a variable of a known section: {guess}? (known: kafka, {', '.join(keys)})"
        raise SettingsError(name, HIDDEN, expected, "environment")


def _from_file(name: str, path: str, key: str, environ: Mapping[str, str]) -> str:
    """Return the text of the file that a variable names, without line breaks at its end.

    Raises SettingsError if the file cannot be used, or the setting cannot come from a file.
    """
    setting, masked = name.removesuffix(FILE_SUFFIX), _masked_path(path)
    if setting in environ:
        raise SettingsError(name, masked, f"one of {setting} and {name}, not both", "environment")
    if NAMES_FILE.fullmatch(key):
        raise SettingsError(name, masked, f"{setting}, which names a file itself", "environment")
    try:
        text = Path(path).read_text(encoding="utf-8-sig").rstrip("\r\n")
    except OSError as error:
        expected = f"a file that can be read ({error.strerror})"
        raise SettingsError(name, masked, expected, "environment") from None
    except UnicodeDecodeError:
        raise SettingsError(name, masked, "a file in UTF-8", "environment") from None
    if not text:
        raise SettingsError(name, masked, "a file that is not empty", "environment")
    return text


def _masked_path(path: str) -> str:
    """Return a path, or a mask if the text may be the secret instead of a path.

    A path is shown if its folder exists and is neither the current folder nor the root.
    """
    folder = Path(path).parent
    try:
        is_path = len(folder.parts) > 1 and folder.is_dir()
    except (OSError, ValueError):  # too long, or with a null byte
        is_path = False
    return path if is_path else HIDDEN
