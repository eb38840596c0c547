"""Populations from CSV files and from distributions."""

import csv
import gzip
import io
import itertools
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from producers.populations.csv_files import DELIMITER_NAMES
from producers.populations.population import Arrivals, Population
from producers.populations.simulated import simulate
from producers.populations.tables import read_population
from producers.populations.text_files import ENCODING_NAMES
from tests.support.axes import CRASH
from tests.support.rows import row
from tests.support.running.broker import CARRIER, DELAY, LATE, PLACE, WORDS

METRICS = {"delay": DELAY, "carrier": CARRIER, "words": WORDS, "place": PLACE}
COLUMNS = {"delay": ["minutes"], "carrier": ["line"]}
TABLE = """\
day,clock,stamp,minutes,line
2013-01-01 00:00:00,10:00,1357034400,11,AA
2013-01-01,09:00,1357030800.5,NA,B6
2013-01-01,NA,,5,AA
2013-01-02,00:00:01,1357084801,-3.5,
2013-01-01,10:00,1357034400,,NA
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(TABLE, encoding="utf-8")
    return path


def read(path: Path, text: str | bytes, columns: dict[str, Any], **options: Any) -> Population:
    """Read a table from a text."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    if "time" not in options:
        options["arrivals"] = Arrivals(1)
    return read_population(path, METRICS, columns, **options)


def test_rows_come_in_order_of_event_time_and_what_is_missing_is_counted(path: Path) -> None:
    times: list[tuple[Any, int]] = [(["day", "clock"], 0), (["stamp"], 500)]
    for time, half in times:
        population = read_population(path, METRICS, COLUMNS, time=time)
        after = [half, 3_600_000, 3_600_000, 54_001_000]
        assert (population.time_ms - 1_357_030_800_000).tolist() == after
        assert str(population.columns["delay"].tolist()) == "[nan, 11.0, nan, -3.5]"
        assert population.columns["carrier"].tolist() == [1, 0, -1, -1]
        assert [population.count_missing(name) for name in COLUMNS] == [2, 2]
        assert population.skipped == 1
        assert population.seconds == (54_001_000 - half) / 1000
    arrivals = Arrivals(start_ms=1000, per_second=2)
    population = read_population(path, METRICS, COLUMNS, arrivals=arrivals)
    assert population.time_ms.tolist() == [1000, 1500, 2000, 2500, 3000]


def test_strings_and_vectors_come_from_a_table_too(path: Path) -> None:
    columns = {"words": ["line"], "place": ["minutes", "stamp"]}
    population = read_population(path, METRICS, columns, time=["day", "clock"])
    assert population.columns["words"].tolist() == ["B6", "AA", "NA", ""]
    assert population.columns["place"][:2, 1].tolist() == [1357030800.5, 1357034400]
    assert population.has_value("words").tolist() == [True, True, True, False]
    assert population.has_value("place").tolist() == [False, True, False, True]
    assert population.part(1, 3).columns["place"].shape == (2, 2)
    with pytest.raises(ValueError, match="1 columns for 'place': expected 2, one for each coord"):
        read_population(path, METRICS, {"place": ["minutes"]}, time=["stamp"])


def test_what_means_no_value_can_be_said_and_numbers_have_points_or_commas(path: Path) -> None:
    population = read(path, "v;w\n NA ;1\n;2\nsun;3\n", {"words": ["v"]})
    assert population.columns["words"].tolist() == ["NA", "", "sun"]
    assert population.notes[-1] == "rows: 3; 2 read, 1 without a value ('' 1)"
    for cells, options, values in (
        ("1;\n-9999.0;\n-9999;\nnan;", {"missing": ["-9999"]}, "[1.0, nan, nan, nan]"),
        ("1.250;\n980,5;", {"decimal": ","}, "[1250.0, 980.5]"),
        ("1,250;\n\u2212980;", {"decimal": "."}, "[1250.0, -980.0]"),
        ("1.250;\n0.875;", {}, "[1.25, 0.875]"),
    ):
        found = read(path, f"v;w\n{cells}\n", {"delay": ["v"]}, **options)
        assert str(found.columns["delay"].tolist()) == values


def packed(text: bytes, *more: str) -> bytes:
    """Return a zip of a table, a folder, and further files."""
    with zipfile.ZipFile(file := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("data/", "data/t.csv", "t.csv.bak", *more):
            archive.writestr(name, text)
    return file.getvalue()


SEVEN = b"t,v\n2026-01-05,7\n"
ZIP = packed(SEVEN)
HEAD, LOCKED, DEFLATE64 = (b"\x14\0%c\0%c\0" % each for each in ((0, 8), (1, 8), (0, 9)))


def test_files_are_read_as_people_have_them(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mac = packed(gzip.compress(SEVEN), "__MACOSX/data/._t.csv", "data/.DS_Store")
    long = SEVEN.replace(b"t,", b'"no\nte",t,').replace(b"2026", b"x" * 200_000 + b",2026")
    excel = b't,v\n="2026-01-05","=""7"""\n'
    assert read(path, "<v>,w\n5,1", {"delay": ["<v>"]}).columns["delay"].tolist() == [5]
    blank = SEVEN.replace(b"2026", b"   \n2026")
    for content in (
        mac,
        blank,
        b'"sep=;",,\r\nt;v\r\n "2026-01-05" ;7\r\n',
        b"sep=\\t\n" + SEVEN.replace(b",", b"\t"),
        b"\n" + SEVEN,
        long,
        excel,
        " Sep =;\nt;v\n2026-01-05;7".encode("utf-16-le"),
        packed(SEVEN, "./~$t.csv").replace(b"data/t", b"././/t"),
    ):
        assert read(path, content, {"delay": ["v"]}, time=["t"]).columns["delay"].tolist() == [7]
    pipe, into = os.pipe()
    with os.fdopen(pipe, "rb"), os.fdopen(into, "wb") as writer:
        writer.write(mac)
        writer.close()
        assert len(read_population(f"/dev/fd/{pipe}", METRICS, {"delay": ["v"]}, time=["t"])) == 1
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(mac)))
    assert len(read_population("-", METRICS, {"delay": ["v"]}, time=["t"])) == 1


MEANINGS = {"20260105": "%Y%m%d", "2026.0": "%Y.0", "45567.5": "excel", "4": "seconds"}
MEANINGS |= {"2601051030": "%y%m%d%H%M", "638000000000000000": "ticks", "0501261030": "%y%m%d%H%M"}
SAYS_NOTHING = {"U": "%Y-%U", "p": "%d.%m.%Y %H %p", "I": "%d.%m.%Y %I", "d": "%Y %d", "H": "%Y %H"}
FOREIGN = {"xz": b"\xfd7zXZ\0", "Zstandard": b"\x28\xb5\x2f\xfd", "tar": b"t" * 257 + b"ustar"}
FOREIGN |= {r"Excel \(xlsx": packed(SEVEN, "xl/workbook.xml"), "Parquet": b"PAR1\x15"}
FOREIGN |= {"JSON": b'[\n { "t": 1 }]', "HTML or XML": b"\xef\xbb\xbf\n <TABLE border=1><tr>"}
REFUSED: list[tuple[str | bytes, str, dict[str, Any]]] = [
    *((ZIP.replace(HEAD, new), "cannot be unpacked", {}) for new in (LOCKED, DEFLATE64, b"")),
    *((data, f"is a file of the format {name}", {}) for name, data in FOREIGN.items()),
    *(("t,v\n1,1\n", f"%{d} says", {"time_format": form}) for d, form in SAYS_NOTHING.items()),
    (b"", "is empty: expected a CSV file with a header", {}),
    (SEVEN + b"\0" * 9, r"line 3: a NUL character. Expected text: `tr -d '\\0'", {}),
    (b"\0" * 9, "line 1: a NUL character", {}),
    ("ü,v\nü,1".encode() + b"\xfc\n", "byte 0xfc in line 2 is not UTF-8, but 2 other", {}),
    ('t,v,s\n1,1,"x\n1,2,x\n1,3,x"\n', "line 2: a quote opens a cell of 3 lines that look", {}),
    ('t,v\na,"b\n' + "a,b\n" * 11 + 'a,b"\n', "line 2: a quote opens a cell of 13 lines", {}),
    ('t,v,"s\n1,1,x\n1,2,x"\n', "line 1: a quote opens a cell of 3 lines that look like rows", {}),
    ('t,v,s\n\n1,1,"x\n1,2,"y\n', "line 3: .* is closed in line 4: expected ','", {}),
    ("v;t\n1.234'567;1\n", "1 of 1 cells are no numbers", {"decimal": ","}),
    (f"t,v,{'w' * 9**6}\n1,{'x' * 9**6}\n", "row 1: 2 cells", {}),
    (f"t,v\n1767571200,{'x' * 9**6}\n", "1 of 1 cells are no numbers", {}),
    ("t,v\u200b\x1b\n1,1\n", r"did you mean 'v.u200b.x1b'\? \(known: t, v.u200b.x1b\)", {}),
    *((f"t,v\n{cell},1\n", rf"--time-format {form} reads", {}) for cell, form in MEANINGS.items()),
    (packed(SEVEN, "u.csv"), r"one CSV file in the zip, found \['data/t.csv', 'u.csv'\]", {}),
    (b't,v\n"2026-01-05,7\n2026-01-06,8\n', "line 2: .* never closed: .* '\"2026-01-05,7", {}),
    (b"t,v\nNA,1\n,2\n", r"no row .*rows: 2; 0 read, 2 without a time \('NA' 1, '' 1\)", {}),
    ("t|v\n---+---\n1|1\n", "row 1 is a line below the header, '---.---': .*`sed 2d FILE", {}),
    ("t,minuets\n1,2\n", "'minutes': did you mean 'minuets'", {"columns": {"delay": ["minutes"]}}),
    ("t,v\n1,2\n1,2,3\n", "row 2: 3 cells, expected 2 .* name each column in the", {}),
    ("t\x01v\n1\x012\n", r"no column 'v': .*`\(echo \$'sep=.U00000001'; cat FILE\) \|", {}),
    ('"t" "v"\n1 2\n', r"If ' ' separates cells, `\(echo 'sep= '; cat FILE\) \|", {}),
    ("t,v\n1,\\N\n2,\\N\n", r"'.+N' \(row 1, and 1 more\).*--missing '\\N', and so on", {}),
    ('t,v\n1,"1,112"\n', "--decimal , reads '1,112' as 1.112 and --decimal . reads .* 1112", {}),
    ("t;v\n1;980\n1;1.250\n", "row 2: '1.250' may have .*--decimal , reads 1250", {}),
    ("t,v\n1,AAA\n", "row 1: category 'AAA' is not one of", {"columns": {"carrier": ["v"]}}),
    *((f"t,v\n31 Jan 2013 10:00:00 {a},1\n", "is no event time", {}) for a in ("CEST", "PM (CET)")),
    *(
        (f"t,v\n5.1.2026 24:{rest},1\n", f"24:{rest}. is no event", {})
        for rest in ("30", "00:00.5")
    ),
    ("t,v\n5 janv. 2026 10:00,1\n", r"in English: `sed 's/janv\\./Jan/' FILE` renames", {}),
    ("t,v\n5. Januar 2026,1\n", "in English: `sed s/Januar/Jan/ FILE` renames", {}),
    ("t,v\nJan 5 9:00,1\n", "has no year: write the year", {"time_format": "%b %d %H:%M"}),
    ("t,v\n1 days 02:03:04,1\n", r"is no event time(?!.*sed).* write times as", {}),
    ("t,v\nMon Jan 3 23:30:00 CET 2026,1\n", "If CET is a time zone, --time-zone REGION", {}),
    ("t,v\n31-01-2026 CET,1\n", "If CET is a time zone, --time-zone REGION", {}),
    ("t,v\n3 marraskuu 2026,1\n", "sed s/marraskuu/Jan/", {}),  # November
    *((f"t,v\n2026-01-05{mark}10.5,1\n", "10.5' is no event time", {}) for mark in "T "),
    ("t,v\n-1,1\n1767600000,1\n", "-1' .row 1: no time of 1980", {}),
    ("t,v\n13.1.26,1\n31.12.26,1\n", "fit '%d.%m.%y' and '%y.%m.%d': choose one", {}),
    *(("t,v\n1,1\n", f"time format '{f}': expected", {"time_format": f}) for f in ("ms", "%s")),
    ("t,v\n1,1\nt,v\n", "row 2 is the first line again. If files were joined, `awk", {}),
    (2 * gzip.compress(SEVEN), r"again.*FILE is .* unpacked \(gzip -d, unzip\)", {}),
    ("2,9:30\n3,9:31\n", "If the first line is data, .* adds a header", {}),
    ("t,v\n9:30,1\n", "a time of day needs its date: --time-column DATE", {}),
    ("# x\nt,v\n1,1\n", r"`tail -n \+2 FILE .* begins with line 2, which has such names$", {}),
    ("t,v\nTS,\n2026-01-05,1\n", "no data, `sed 2d FILE", {}),
    ("t,v\n,ms\n,Avg\n" + ",7\n" * 5, "no data, `sed 2,3d FILE", {}),
    *(
        (
            "t,v" + "".join(f"\n2026-01-05 {h}{m}-{h + 1}{m},1" for h in (9, 10, 11)),
            "are stretch",
            {},
        )
        for m in ("", ":00")
    ),
    ("v\n1.250\n", "may have .*--decimal , reads 1250", {"time": [], "arrivals": Arrivals(1)}),
    ("день,v\n1,2\n".encode("cp1251"), "no column .*byte 0xe4 .* not UTF-8.*`iconv", {}),
    (b"t,v\n1,\xff\x81\n", "neither UTF-8, nor UTF-16, nor Windows-1252", {}),
    ("t,v\n02/01/2013,1\n03/01/2013,2\n", "fit '%d/%m/%Y' and '%m/%d/%Y': choose one", {}),
    ("t,v\n1767600000,1\n1767600000000,1\n", r"\(row 1: seconds\) and .*\(row 2: millisec", {}),
    ("t,v\n31/01/2013,1\nsoon,1\n", "row 2: 'soon' is no event time: expected %d/%m/%Y", {}),
    ("t,v\n2026-01-05 CET,1\n", "no zone of UTC, UTC or", {"time_format": "%Y-%m-%d %Z"}),
    ('t,v\n1,999\n2,"1.250"\n', "row 2: '1.250' may have .*--decimal , reads 1250", {}),
    ("t,v\n2026115,1\n", "7 digits in .2026115.: expected 8", {"time_format": "%Y%m%d"}),
    ("t,v\n1Z,1\n", "says UTC: expected %z", {"time_format": "%YZ", "time_zone": "Asia/Tokyo"}),
    ("t,v\n1z,1\n", "says UTC: expected %z", {"time_format": "%Yz", "time_zone": "Asia/Tokyo"}),
    ('t,v,s\n1,1,"a \\"b\\", c"\n', "writes quotes in cells as CSV files do", {}),
    (f't,v,s\n1,1,"a\nb"\n{"1" * 9**5},x,"a\nb"\n', "row 1: '1' is no event time|row 2", {}),
]


def test_what_is_wrong_with_a_table_is_named(path: Path) -> None:
    for text, said, options in REFUSED:
        with row(said), pytest.raises(ValueError, match=said) as wrong:
            read(path, text, **{"columns": {"delay": ["v"]}, "time": ["t"], **options})
        assert len(str(wrong.value)) < 1200
    columns = {"v,w,v\n1,5,3": "w", "t; DELAY \n1;5": "delay", "V,v\n1,5": "v"}
    columns |= {"V\u200b,w\n5,1": "v", "e\u0301\n5": "\xe9"}
    for name, column in columns.items():
        assert read(path, name, {"delay": [column]}).columns["delay"].tolist() == [5]


def test_encoding_and_delimiter_are_detected(path: Path) -> None:
    rows = [["when", "Größe"], ["2026-01-01", "Zürich, HB; gare|x"], [], ["2026-01-02", "AA"]]
    for encoding, delimiter in itertools.product(["utf-8", *ENCODING_NAMES], ",;\t|"):
        with path.open("w", encoding=encoding, newline="") as text:
            csv.writer(text, delimiter=delimiter).writerows(rows)
        with row(encoding, delimiter):
            population = read_population(path, METRICS, {"words": ["Größe"]}, time=["when"])
            assert population.columns["words"].tolist() == ["Zürich, HB; gare|x", "AA"]
            name = ENCODING_NAMES["utf-8-sig" if encoding == "utf-8" else encoding]
            form = f"file: {name}, separated by {DELIMITER_NAMES[delimiter]}"
            if encoding == "cp1252":
                form += "; byte 0xf6 in line 1 is not UTF-8 (3 bytes in 2 lines). It was read as "
                form += repr(f"when{delimiter}Größe")
            assert population.notes[0].startswith(form)
            assert population.notes[0].endswith("; empty lines, which are no rows: 1")
            assert population.notes[-1] == "rows: 2; 2 read"


NINE = "2013-01-31T09:00:00"
SPELLINGS = """1359622800000 ~ "2013-01-31,  09:00" ~ "Thu,  31 Jan 2013  10:00:00 +0100"
Thu Jan 31 2013 10:00:00 GMT+0100 (Central European Standard Time) ~ Thu Jan 31 04:00:00 EST 2013
2013-01-31T10:00:00+01:00[Europe/Berlin] ~ 2013-01-31 09:00:00.0 +0000 UTC m=+0.1
[31/Jan/2013:09:00:00 +0000] ~ 31JAN2013:09:00:00 ~ "Thursday, January 31st, 2013 at 9:00 a.m."
31-Jan-13 09.00.00.000000000 AM ~ 2013. 1. 31. 오전 9:00:00 ~ 1/31/13 9:00AM ~ 2013-01-31 09.00
'2013\u201301\u201331t09:00z ~ 2013-01-31 04:00:00\u221205:00 ~ 31. 1. 2013 - 9.00 Uhr
2013-\u0660\u0661-31 9:00 ~ 2013年1月31日 (木) 9時00分 ~ 2013-01-31-09.00.00.000000
1/31/2013 4:00:00 AM -05:00 ~ 2013-Jan-31_09-00-00 ~ 2013-01-31 10:00 (UTC+1)
20130131 9:00 ~ 31 Jan 2013 9:00 AM ~ 2013/01/31T09:00:00Z ~ 1/31/13 9:00a
2013/01/31 10:00:00 AM GMT+1 ~ 2013 1 31 9 0 ~ 9:00 31/1/2013 ~ "9:00, Jan 31, 2013"
2013-01-31-09:00:00 ~ 31.1.2013 klo 9.00 ~ 2013-01-31 0:00:00 PM +0300"""


def test_times_are_read_in_the_format_and_zone_that_they_are_written_in(path: Path) -> None:
    berlin, missing = {"time_zone": "Europe/Berlin"}, {"time_zone": "Asia/Tokyo", "missing": ["-"]}
    cases: list[Any] = [
        *(([cell], {}, NINE) for cell in re.split(" ~ |\n", SPELLINGS)),
        (["2013-01-31T10:00:00+01:00", "2013-01-31 09:00"], {}, NINE),
        (["31/01/2013 09:00", "01/02/2013", "01/02/2013 10:00:30", "1/2/2013 9:00:30.5"], {}, NINE),
        (['"Jan 31, 2013 9:00:00 AM"'], {}, NINE),
        (['"1359622800,000"', '"1359622860,5"'], {}, NINE),
        (['"41305,375"'], {"time_format": "excel"}, NINE),
        (["1/31/2013 9:00 AM", "2/1/2013 9:00 PM"], {}, NINE),
        (["31.01.2013", "01.02.2013"], {}, "2013-01-31T00:00:00"),
        (["Thu 31 Jan 2013 10:00:00 +0100", "NA"], {"time_format": "%a %d %b %Y %X %z"}, NINE),
        (["31 Jan 2013 10:00:00 +0100 (CET)", "1 Feb 2013 04:00:01"], missing, NINE),
        (["2013-01-31 09:00:00 UTC", "-"], missing, NINE),
        (["2013-01-30 24:00:00", "2013-01-31T00:00"], berlin, "2013-01-30T23:00:00"),
        (["30.01.2013 24:00", "31.01.2013 09:00"], {}, "2013-01-31T00:00:00"),
        (["31 Jan 2400 10:00:00 GMT"], {}, "2400-01-31T10:00:00"),
        (["31.01.2013 09:00", "NA"], berlin, "2013-01-31T08:00:00"),
        (["31.1.2013 10:00 CET"], {"time_format": "%d.%m.%Y %H:%M %Z", **berlin}, NINE),
        (["634952196000000000"], {"time_format": "ticks"}, NINE),
        (["15736.375"], {"time_format": "days"}, NINE),
        (["31 Jan 2013 17:00:00 CST"], {"time_zone": "Asia/Shanghai"}, NINE),
        (["31 Jan 2013 09:00:00 -0000"], {"time_zone": "Asia/Shanghai"}, NINE),
        (["1359622800", "1359622860"], {}, NINE),
        (["02/01/2013", "03/01/2013"], {"time_format": "%m/%d/%Y"}, "2013-02-01T00:00:00"),
    ]
    for cells, options, first in cases:
        text = "t,v\n" + "".join(f"{cell},1\n" for cell in cells)
        with row(cells):
            population = read(path, text, {"delay": ["v"]}, time=["t"], **options)
            assert population.time_ms[0] == np.datetime64(first, "ms").astype(np.int64)
            if "Thu, " in text:
                assert "times: RFC 2822, as in Thu, 31 Jan" in population.notes[1]
                assert population.notes[1].endswith(
                    "; 2013-01-31T09:00:00Z to 2013-01-31T09:00:00Z"
                )


DAYS = "".join(f"2026-01-05,{i % 100}\n" for i in range(100))
NOTED = {
    r"1 of 2 were skipped when .*02:30' .row 1": "t,v\n2013-03-31 02:30,1\n2013-04-01,1",
    r"1 of 2 came twice when .*02:30' .row 2": "t,v\n2013-10-27 03:00,1\n2013-10-27 02:30,1",
    r"1 of 101 are far from all .*9999-12-31' .row 101": f"t,v\n{DAYS}9999-12-31,1",
    r"1 of 1 are later than now; the first is '2098-12-31' .row 1": "t,v\n2098-12-31,1",
    "CST is read as in the United States; if --time-zone": "t,v\n1 Jan 2013 10:00:00 CST,1",
    "far: 2 of 102 values are -999.0 and 9999.0": f"t,v\n{DAYS}2026-01-05,-999\n2026-01-05,9999",
    "total: the last value, 13.0, is the sum": "t,v" + "\n2026-01-05,".join(["", *"2353", "13"]),
    "cells of several lines: 1, the longest of 2": 't,v\n2026-01-05,"1\n"\n',
    "header: 'v' is the name of a column. If .* adds a header": "t,v\n2026-01-05,1\n2026-01-05,v",
    "without minutes; --time-column 't' --time-column 'hour' reads": "t,v,hour\n2026-01-05,1,9:30",
    "1 read, 6 without .*, others 1": "t,v\n2026-01-05," + "\n2026-01-05,".join("1abcdef"),
    "1 read, 1 without a time .'-5.0' 1": "t,v\n-5.0,1\n1767571200,1",
    "row 1: 'ms' in column 's', where others": "t,v,s\n,,ms\n" + "2026-01-05,1,2\n" * 11,
}


def test_what_may_be_read_otherwise_is_noted(path: Path) -> None:
    options: dict[str, Any] = {
        "time_zone": "Europe/Berlin",
        "missing": [*"tvabcdef", "-5"],
        "time": ["t"],
    }
    for said, text in NOTED.items():
        with row(said):
            assert re.search(said, "\n".join(read(path, text, {"delay": ["v"]}, **options).notes))


def test_simulated_values_follow_their_distribution() -> None:
    for distribution, mean, deviation in (
        ("uniform", 60.0, 240 / np.sqrt(12)),
        ("normal:17,5", 17.0, 5.0),
        ("normal", 60.0, 40.0),
        ("bernoulli:0.25", 0.0, 240 * np.sqrt(3) / 4),
    ):
        values = simulate(DELAY, 40_000, distribution, Arrivals(1), seed=3).columns["delay"]
        with row(distribution):
            assert -60 <= values.min() < values.max() <= 180
            assert abs(values.mean() - mean) < 5 * deviation / np.sqrt(40_000)
            assert abs(values.std() - deviation) < 0.03 * deviation
    drawn = simulate(CARRIER, 40_000, "zipf:1", Arrivals(1), seed=3).columns["carrier"]
    weights = 1 / np.arange(1.0, 10.0)
    found, expected = np.bincount(drawn, minlength=9) / 40_000, weights / weights.sum()
    assert (np.abs(found - expected) < 5 * np.sqrt(expected / 40_000)).all()


def test_a_distribution_that_is_none_is_explained() -> None:
    wrong = {"gauss": "distribution 'gauss' for kind 'mean'", "normal:1,-2": "deviation -2.0"}
    wrong |= dict.fromkeys(("normal:1", "normal:nan,1"), "expected normal:MEAN,DEVIATION")
    wrong |= {"bernoulli:2": "probability 2.0", "zipf:-1": "exponent -1.0"}
    for text, said in wrong.items():
        with row(text), pytest.raises(ValueError, match=said):
            simulate(CARRIER if "zipf" in text else LATE, 10, text, Arrivals(1))


def test_a_row_of_axes_is_what_a_device_reports_of_the_same_values(path: Path) -> None:
    """From a column for each axis, or one of categories; another value is named with its row."""
    cells = [*itertools.product(["no", "yes", "", "NA"], repeat=2)]
    table = [f'{used},{crashed},"used_x={used}, crashed={crashed}"' for used, crashed in cells]
    path.write_text("\n".join(["Used_X,c,crash", *table]))

    def indices(*columns: str, **options: Any) -> Any:
        times = {"arrivals": Arrivals(1)} | options
        population = read_population(path, {"crash": CRASH}, {"crash": columns}, **times)
        return population.columns["crash"].tolist()

    expected = [
        -1
        if {"", "NA"}.intersection(row)
        else CRASH.domain.to_unit(CRASH.domain.rows({"used_x": row[0], "crashed": row[1]})).item()
        for row in cells
    ]
    assert indices("used_x", "c") == expected
    unlisted = [text for _, _, text in csv.reader(table) if text not in CRASH.labels]
    assert indices("crash", missing=unlisted) == expected
    with pytest.raises(ValueError, match="3 columns for 'crash': expected 1, with categories, or"):
        indices("used_x", "c", "crash")
    path.write_text("used_x,crashed\nno,yes\nyes,maybe")
    with pytest.raises(
        ValueError,
        match=r"column 'crashed', row 2: category 'maybe' is not one of "
        r"axis crashed of 'crash': did you mean 'yes'",
    ):
        indices("used_x", "crashed")
