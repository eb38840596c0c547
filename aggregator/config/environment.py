"""``DITHER_*`` variables as settings: values, and secrets in files that variables name.

``DITHER_<SECTION>_<KEY>`` has a value, ``DITHER_<SECTION>_<KEY>_FILE`` the path of a file that has
it: Docker and Kubernetes mount secrets as files.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from aggregator.errors import SettingsError
from aggregator.secrets import HIDDEN

PREFIX = "DITHER_"
FILE = "_FILE"
KAFKA_FILES = (
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.jwt.template.file",
    "sasl.oauthbearer.assertion.private.key.file",
)
"""Properties of librdkafka whose own names end like a variable that names a file."""
NAMES_FILE = re.compile(r"metrics|serve\.tls_\w+|kafka\..*\.location")
"""Settings that are the name of a file themselves."""
KAFKA_LIKELY = ("bootstrap.servers", "sasl.username", "sasl.password", "security.protocol")
LINKED = re.compile(
    r"\w*(_SERVICE_HOST|_SERVICE_PORT(_\w+)?|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
LINK = re.compile(r"(tcp|udp|sctp)://")
"""Kubernetes tells every container of every service, by variables named after them: one that is
called dither-serve must not be mistaken for settings."""
OTHERS = re.compile(r"DITHER_(TEST_\w*|REQUIRE_REAL|CONFIG)")
ALIKE = 0.8
"""How much a variable must be like a setting's to be taken for a mistyped one."""


Variable = tuple[str, str, str]
"""A setting from the environment: the variable's name, the setting's dotted key, and the value."""


def variables(environ: Mapping[str, str], keys: Mapping[str, list[str]]) -> Iterator[Variable]:
    """Yield the settings of an environment.

    Parameters
    ----------
    environ : mapping
    keys : mapping of str to list of str
        The keys of each section; any are taken for [kafka], and any tokens for [access].

    Raises
    ------
    SettingsError
        If a variable seems mistyped, is given twice, or names a file that cannot be used.
    """
    for name, text in sorted(environ.items()):
        if not name.startswith(PREFIX) or _is_of_others(name, text):
            continue
        key = _key(name, keys)
        if key is None:
            _refuse_mistyped(name, keys)
        elif name.endswith(FILE) and key.removeprefix("kafka.") not in KAFKA_FILES:
            plain = _key(name.removesuffix(FILE), keys) or key
            yield name, plain, _from_file(name, text, plain, environ)
        else:
            yield name, key, text


def _key(name: str, keys: Mapping[str, list[str]]) -> str | None:
    """Return the setting that a variable is for; None where its section is unknown."""
    section, _, rest = name.removeprefix(PREFIX).lower().partition("_")
    if section == "metrics" and rest in ("", "file"):
        return section
    if section == "kafka":
        return f"kafka.{rest.replace('_', '.')}"
    if section == "access" and rest.startswith("tokens_"):
        return f"access.tokens.{rest.removeprefix('tokens_')}"
    return f"{section}.{rest}" if section in keys else None


def _is_of_others(name: str, text: str) -> bool:
    is_link = name.endswith("_PORT") and LINK.match(text)
    return bool(is_link or OTHERS.fullmatch(name) or LINKED.fullmatch(name))


def _refuse_mistyped(name: str, keys: Mapping[str, list[str]]) -> None:
    """Raise if a variable is much like a setting's; one that is not is somebody else's."""
    known = [f"{PREFIX}{section}_{key}".upper() for section in keys for key in keys[section]]
    known += [f"{PREFIX}KAFKA_{key}".upper().replace(".", "_") for key in KAFKA_LIKELY]
    known += [*(f"{PREFIX}{key}".upper() for key in keys), f"{PREFIX}KAFKA", f"{PREFIX}METRICS"]
    plain = name.removesuffix(FILE)
    section = "_".join(plain.split("_")[:2])
    close = difflib.get_close_matches(plain, known, n=1, cutoff=ALIKE) or [
        f"{match}_..." for match in difflib.get_close_matches(section, known, n=1, cutoff=ALIKE)
    ]
    key = plain.removeprefix(PREFIX)
    bare = [f"{PREFIX}{section}_{key}".upper() for section in keys if key.lower() in keys[section]]
    short = [full for full in known if full.endswith(f"_{key}")]
    if guess := " or ".join(bare) or "".join([*short, *close][:1]):
        expected = f"a variable of a known section: {guess}? (known: kafka, {', '.join(keys)})"
        raise SettingsError(name, HIDDEN, expected, "environment")


def _from_file(name: str, path: str, key: str, environ: Mapping[str, str]) -> str:
    """Return what is in a secret's file, without the line's end that editors add."""
    plain, shown = name.removesuffix(FILE), _shown(path)
    if plain in environ:
        raise SettingsError(name, shown, f"one of {plain} and {name}, not both", "environment")
    if NAMES_FILE.fullmatch(key):
        raise SettingsError(name, shown, f"{plain}, which names a file itself", "environment")
    try:
        text = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        expected = f"a file that can be read ({error.strerror})"
        raise SettingsError(name, shown, expected, "environment") from None
    except UnicodeDecodeError:
        raise SettingsError(name, shown, "a file in UTF-8", "environment") from None
    if not text:
        raise SettingsError(name, shown, "a file that is not empty", "environment")
    return text


def _shown(path: str) -> str:
    """Return a path; hidden where it may be the secret itself, which the variable should not have.

    One in a folder that there is, other than the present one and the root, is a path.
    """
    folder = Path(path).parent
    try:
        is_path = len(folder.parts) > 1 and folder.is_dir()
    except (OSError, ValueError):  # too long for a path, or with a null
        is_path = False
    return path if is_path else HIDDEN
