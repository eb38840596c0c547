"""Opens text files in UTF-8 or another encoding, which may be compressed or come from a pipe."""

from __future__ import annotations

import codecs
import gzip
import io
import lzma
import re
import shlex
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from estimators.errors import shortened

UTF_8, UTF_16, WINDOWS_1252 = "utf-8-sig", "utf-16", "cp1252"
_UNMARKED_ENCODINGS = {"utf-32": "UTF-32", "utf-16-le": "UTF-16LE", "utf-16-be": "UTF-16BE"}
"""Encodings with NUL bytes, to try if UTF-8 or a byte-order mark of UTF-16 does not fit."""
ENCODING_NAMES = {
    UTF_8: "UTF-8",
    UTF_16: "UTF-16",
    WINDOWS_1252: "Windows-1252",
    **_UNMARKED_ENCODINGS,
}
STDIN_PATH = Path("/dev/stdin")
SAVE_HINT = "A spreadsheet saves it with 'CSV UTF-8'"
_PIPE_HINT = "| dither define - ..."
_ICONV_HINT = f"`iconv -f CP1251 -t UTF-8 FILE {_PIPE_HINT}` reads another encoding (or SHIFT_JIS)"
_FOREIGN_FORMATS = (
    (0, b"\xfd7zXZ\0", "xz", "xz -dc"),
    (0, b"\x28\xb5\x2f\xfd", "Zstandard", "zstd -dc"),
    (0, b"\x04\x22\x4d\x18", "lz4", "lz4 -dc"),
    (0, b"\x1f\x9d", "compress", "gzip -dc"),
    (4, b"1AY&SY", "bzip2", "bzip2 -dc"),
    (0, b"7z\xbc\xaf\x27\x1c", "7-Zip", "7z x -so"),
    (0, b"Rar!\x1a\x07", "RAR", "unrar p -inul"),
    (257, b"ustar", "tar", "tar -xOf"),
    (0, b"PAR1\x15", "Parquet", ""),
    (0, b"ARROW1\0\0", "Arrow", ""),
    (0, b"SQLite format 3\0", "SQLite", ""),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1", "Excel (xls)", ""),
    (0, b"%PDF-", "PDF", ""),
    (0, b"\x89HDF\r\n", "HDF5", ""),
    (0, b"\x93NUMPY", "NumPy", ""),
    (0, b"Obj\x01", "Avro", ""),
    (0, b"\x80\x04\x95", "pickle", ""),
    (0, b"ORC", "ORC", ""),
    (8, b"DUCK", "DuckDB", ""),
    (0, b"version https://git-lfs", "Git LFS, without the content", ""),
)
"""Formats other than CSV: offset and magic bytes, name, and the command that unpacks a file."""
_TEXT_FORMATS = {
    re.compile(rb'[{[]\s*[{["\d]|[{[]\s*$', re.MULTILINE): "JSON",
    re.compile(rb"<[!?a-z][^<>]*(>(?![,;\t|])|$)", re.IGNORECASE): "HTML or XML",
}
"""How texts of other formats begin; titles such as <DATE> may begin a CSV file."""
_OFFICE_FILES = {"xl/workbook.xml": "Excel (xlsx)", "xl/workbook.bin": "Excel (xlsb)"}
_OFFICE_FILES |= {"content.xml": "OpenDocument (ods)", "Index/Document.iwa": "Numbers"}
"""Members of the zip files of spreadsheets."""
_CSV_NAME = re.compile(r"\.csv(\.gz|\.zip)?$", re.IGNORECASE)
_NO_TABLE = re.compile(r"/$|(^|/)(__MACOSX/|\.[^./]|~\$)")
"""Members of a zip that are folders, or files that macOS and Excel add."""
_DAMAGE_ERRORS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError)
"""Errors of damaged files; zipfile raises RuntimeError for a password or an unknown compression."""
_NO_UTF_8 = re.compile("[\udc80-\udcff]")
_NO_WESTERN = "\udc81\udc8d\udc8f\udc90\udc9d"
"""Surrogate escapes of bytes that Windows-1252 does not define."""
_CHUNK_CHARACTERS = 1 << 20
_MAX_SHOWN_FILES = 10


def table_path(path: str | Path) -> Path:
    """Return the path of a table; ``-`` means the standard input, and ``./-`` a file."""
    return STDIN_PATH if path == "-" else Path(path)


@contextmanager
def open_bytes(path: Path) -> Iterator[Any]:
    """Open a CSV file as unpacked bytes, which are seekable.

    Raises ValueError if it cannot be unpacked, is not text, or is a zip without exactly one text
    file.
    """
    if path == STDIN_PATH and sys.stdin is None:
        raise ValueError("standard input is closed: expected a CSV file")
    with nullcontext(sys.stdin.buffer) if path == STDIN_PATH else path.open("rb") as file:
        read = unpacked = file if file.seekable() else io.BytesIO(file.read())
        try:
            unpacked = _unpacked(path, read)
            yield unpacked
        except (UnicodeDecodeError, *_DAMAGE_ERRORS) as error:
            wrong = "cannot be unpacked"
            if isinstance(error, UnicodeDecodeError):
                wrong = "neither UTF-8, nor UTF-16, nor Windows-1252"
            raise ValueError(
                f"{path}: {wrong} ({error}): expected text, or an undamaged zip or gzip of it "
                f"without a password. {SAVE_HINT}"
            ) from None
        except ValueError as error:
            if unpacked is not read and " FILE" in str(error):  # it has a command to run
                error.args = (f"{error}. There, FILE is {path.name} unpacked (gzip -d, unzip)",)
            raise


def _unpacked(path: Path, packed: Any) -> Any:
    """Return the content of a file; zip and gzip files, also nested ones, are unpacked."""
    start = packed.read(512)
    packed.seek(0)
    if start.startswith(b"\x1f\x8b"):
        return _unpacked(path, gzip.GzipFile(fileobj=packed, mode="rb"))
    for offset, mark, name, command in _FOREIGN_FORMATS:
        if start.startswith(mark, offset):
            raise _foreign(path, name, command)
    for beginning, name in _TEXT_FORMATS.items():
        if beginning.match(start.removeprefix(codecs.BOM_UTF8).lstrip()):
            raise _foreign(path, name, "")
    if not start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return packed
    archive = zipfile.ZipFile(packed)
    if office := [name for member, name in _OFFICE_FILES.items() if member in archive.namelist()]:
        raise _foreign(path, office[0], "")
    names = [name for name in archive.namelist() if not _NO_TABLE.search(name)]
    table_names = [name for name in names if _CSV_NAME.search(name)] or names
    if len(table_names) != 1:
        raise ValueError(
            f"{path}: expected one CSV file in the zip, found {table_names[:_MAX_SHOWN_FILES]}. Of "
            f"several, `unzip -p {path.name} NAME {_PIPE_HINT}` reads one. {SAVE_HINT}"
        )
    return _unpacked(path / table_names[0], archive.open(table_names[0]))


def _foreign(path: Path, name: str, command: str) -> ValueError:
    remedy = (
        f"`{command} {path} {_PIPE_HINT}` reads it" if command else f"Save it as CSV. {SAVE_HINT}"
    )
    return ValueError(f"{path} is a file of the format {name}: expected a CSV file. {remedy}")


def detect_encoding(path: Path, raw: Any) -> tuple[str, str]:
    """Return a file's encoding, and a note if it is not UTF-8.

    Raises ValueError if it has a NUL character, if most but not all characters beyond ASCII are
    UTF-8, or if its bytes are not Windows-1252 either.
    """
    has_mark = raw.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    likely = UTF_16 if has_mark else UTF_8
    for encoding in (likely, *_UNMARKED_ENCODINGS):
        raw.seek(0)
        text = io.TextIOWrapper(raw, encoding=encoding)
        try:
            if _is_text(text, encoding):
                return encoding, ""
        except UnicodeError:  # of UTF-32, that there is no byte-order mark
            if encoding == UTF_16:
                raise
        finally:
            text.detach()
    return WINDOWS_1252, _why_western(path, raw, likely)


def _is_text(text: io.TextIOWrapper, encoding: str) -> bool:
    """Return whether a text has no NUL character, and several lines if its encoding is a guess."""
    first = text.readline(_CHUNK_CHARACTERS)
    if encoding in _UNMARKED_ENCODINGS and not (first.endswith("\n") and text.read(1)):
        return False
    text.seek(0)
    return not any("\0" in chunk for chunk in iter(lambda: text.read(_CHUNK_CHARACTERS), ""))


def _why_western(path: Path, raw: Any, encoding: str) -> str:
    """Return a note on why a file is not UTF-8; raise ValueError if it is damaged UTF-8."""
    raw.seek(0)
    errors = "strict" if encoding == UTF_16 else "surrogateescape"
    without_nul = f"tr -d '\\0' < {path}"
    if encoding == UTF_16:
        without_nul = f"iconv -f UTF-16 -t UTF-8 {path} | tr -d '\\0'"
    text = io.TextIOWrapper(raw, encoding=encoding, errors=errors, newline="")
    valid = invalid = wrong_lines = 0
    for number, line in enumerate(text, 1):
        if "\0" in line:
            raise ValueError(
                f"{path}, line {number}: a NUL character. Expected text: `{without_nul} "
                f"{_PIPE_HINT}` leaves them out"
            )
        if line.isascii():
            continue
        wrong = _NO_UTF_8.findall(line)
        if unknown := [byte for byte in wrong if byte in _NO_WESTERN]:
            raise ValueError(
                f"{path}, line {number}: byte {_hex(unknown[0])} is neither UTF-8, nor UTF-16, nor "
                f"Windows-1252: expected one of them. {SAVE_HINT}; {_ICONV_HINT}"
            )
        if wrong and not invalid:
            read = shortened(line.encode("utf-8", "surrogateescape").decode(WINDOWS_1252).strip())
            first_fault = f"byte {_hex(wrong[0])} in line {number} is not UTF-8"
        invalid += len(wrong)
        wrong_lines += bool(wrong)
        valid += len(line) - len(wrong) - sum(map(str.isascii, line))
    text.detach()
    if valid >= invalid:
        raise ValueError(
            f"{path}: {first_fault}, but {valid:,} other characters beyond ASCII are: expected one "
            f"encoding. `iconv -c -f UTF-8 -t UTF-8 {path} {_PIPE_HINT}` leaves such bytes out"
        )
    first_fault += f", although {valid:,} characters would be" * (valid > 0)
    return (
        f"{first_fault} ({invalid:,} bytes in {wrong_lines:,} lines). It was read as {read}; if "
        f"that is wrong, {_ICONV_HINT}"
    )


def _hex(escaped: str) -> str:
    return f"0x{ord(escaped) & 0xFF:02x}"


def escaped(text: str) -> str:
    """Return a text with unprintable characters escaped as in TOML, and in shells' $'...'."""
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)


def shell_word(text: str) -> str:
    r"""Return a text as one word of a shell's command.

    >>> print(shell_word("a b"), shell_word("a\x1b'"))
    'a b' $'a\U0000001b\''
    """
    if text.isprintable():
        return shlex.quote(text)
    quoted = re.sub(r"['\\]", r"\\\g<0>", text)
    return f"$'{escaped(quoted)}'"
