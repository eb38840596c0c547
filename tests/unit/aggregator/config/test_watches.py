"""Comparisons and alarms in the file of definitions."""

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from aggregator.config.definitions import MetricDefinitions
from aggregator.config.live_metrics import LiveMetrics, current
from aggregator.features.alarms.definitions import AlarmDefinition, alarms_of
from aggregator.features.comparisons.definitions import ComparisonDefinition, comparisons_of
from estimators import DefinitionError
from tests.support.rows import row

METRICS = """
[attributes]
country = ["DE", "FR"]
variant = ["new", "old"]
[metrics]
late = {kind = "mean", range = [0, 1], mechanism = "randomized_response", levels = [1, 2], \
pane = "5m", by = ["country", "variant"]}
colour = {kind = "frequency", categories = ["red", "blue"], mechanism = "grr", levels = [1]}
page = {kind = "frequency", mechanism = "count_sketch", categories = "open", levels = [1], \
options = {rows = 4, buckets = 64}}
pay = {kind = "mean", trust = "central", range = [0, 9], levels = [1]}
"""
COMPARISON = """
[comparisons.checkout]
metric = "late"
where = { variant = "new" }
against = { variant = "old" }
start = 2026-11-20T00:00:00Z
"""
ALARM = """
[alarms.moved]
metric = "late"
by = ["country"]
baseline = "28d"
start = "2026-11-01T00:00:00+01:00"
false_alarms = "1/365d"
"""
START_MS = 1_793_487_600_000


def load(tmp_path: Path, *tables: str) -> MetricDefinitions:
    file = tmp_path / "metrics.toml"
    file.write_text(METRICS + "".join(tables), encoding="utf-8")
    return MetricDefinitions.load(file)


def test_comparisons_and_alarms_stand_beside_the_metrics(tmp_path: Path) -> None:
    found = load(tmp_path, COMPARISON, 'split = "1:3"\n', ALARM)
    assert found.tables["comparisons"] == {
        "checkout": ComparisonDefinition(
            name="checkout",
            metric="late",
            start_ms=1_795_132_800_000,
            where={"variant": "new"},
            against={"variant": "old"},
            split=1 / 3,
        )
    }
    (comparison,) = found.tables["comparisons"].values()
    titled = load(tmp_path, COMPARISON, 'split = "1:3"\ntitle = "New checkout"\n')
    (with_title,) = titled.tables["comparisons"].values()
    assert (with_title.key, with_title.title) == (comparison.key, "New checkout")
    assert found.tables["alarms"] == {
        "moved": AlarmDefinition(
            name="moved",
            metric="late",
            start_ms=START_MS,
            every_ms=86_400_000,
            false_alarms=1 / 365,
            by=("country",),
            baseline_ms=28 * 86_400_000,
            promise="1/365d",
        )
    }


def test_a_limit_on_a_logarithmic_scale_is_its_nearest_edge(tmp_path: Path) -> None:
    size = """
    [metrics.size]
    kind = "distribution"
    range = [1, 1000]
    bins = 3
    scale = "log"
    levels = [1]
    by = ["country", "variant"]
    """
    below = ('"late"', '"size"\nbelow = [300.0, 12]')
    found = load(tmp_path, size, COMPARISON.replace(*below), ALARM.replace(*below))
    assert found.tables["comparisons"]["checkout"].below == (100, 10)
    assert found.tables["alarms"]["moved"].below == (100, 10)
    assert found.tables["alarms"] == load(tmp_path, size, ALARM.replace(*below)).tables["alarms"]


WRONG_COMPARISONS = [
    ('"late"', '"lat"', "checkout.metric", "'late'?"),
    ('"late"', '"colour"', "checkout.where", "no by"),
    ('{ variant = "new" }', '{ varian = "new" }', "checkout.where", "'variant'?"),
    ('{ variant = "new" }', "{}", "checkout.where", "a value of one attribute"),
    ('{ variant = "old" }', '"all"', "checkout.against", "'rest'"),
    ("T00:00:00Z", "T00:00:01Z", "checkout.start", "by_pane"),
    ("T00:00:00Z", "T00:00:00", "checkout.start", "offset"),
    ("2026-11-20T00:00:00Z", '"soon"', "checkout.start", "offset"),
    ("start = 2026-11-20T00:00:00Z", "", "checkout.start", "a value"),
    ("start", 'split = "1:0"\nstart', "checkout.split", "above zero"),
    ("start", f'split = "{"9" * 400}:1"\nstart', "checkout.split", "to 1000000:1"),
    ("start", "independent = true\nstart", "checkout.independent", "other = NAME"),
    ("start", "beta = 1\nstart", "checkout.beta", "between 0 and 1"),
    ("start", "categories = []\nstart", "checkout.categories", "one category or more"),
    ("start", 'categories = ["red"]\nstart', "checkout.categories", "has none"),
    ("checkout", "Checkout", "Checkout", "lower-case"),
    ("start", "below = [1]\nstart", "checkout.below", "for a distribution alone"),
    ("start", "quantiles = [0.5]\nstart", "checkout.quantiles", "is of kind 'mean'"),
    ('"late"', '"wait"\nquantiles = [1.5]', "checkout.quantiles", "between 0 and 1"),
    ('"late"', '"wait"\nbelow = [2.5]', "checkout.below", "such as 2 or 3"),
    ('"late"', '"wait"\nof = "ratio"', "checkout.of", "'difference': a ratio needs numbers of at"),
    ("start", 'other = "wait"\nstart', "checkout.other", "the same, so that a difference means"),
]


DISTRIBUTIONS = """
[metrics.wait]
kind = "distribution"
range = [-1, 7]
bins = 8
levels = [1]
by = ["variant", "country"]
"""
WRONG_ALARMS = [
    ('"28d"', '"28d"\nbelow = [3]', "moved.below", "for a distribution alone"),
    ('"late"', '"wait"', "moved.below", "the shares below are watched"),
    ('"28d"', '"90m"', "moved.baseline", "by_pane"),
    ('baseline = "28d"', "", "moved.baseline", "baseline_value"),
    ('"28d"', '"28d"\nbaseline_value = 0.5', "moved.baseline", "baseline_value"),
    ('"1/365d"', '"often"', "moved.false_alarms", "1/365d"),
    ('"1/365d"', '"1/1d"', "moved.false_alarms", "less than one"),
    ('["country"]', '["county"]', "moved.by", "'country'?"),
    ('["country"]', '["country"]\nwhere = { country = "DE" }', "moved.where", "not in both"),
    ("baseline", 'every = "7m"\nbaseline', "moved.every", "by_pane"),
    ('baseline = "28d"', "baseline_value = 2", "moved.baseline_value", "from 0 to 1"),
    ('"late"', '"page"', "moved.metric", "count_sketch"),
    ("baseline", "least = -1\nbaseline", "moved.least", "0 or more"),
    (
        '"late"\nby = ["country"]',
        '"colour"\ncategories = ["red / red.."]',
        "moved.categories",
        "categories alone",
    ),
]


def test_a_wrong_definition_is_refused_by_its_key(tmp_path: Path) -> None:
    for table, text, (old, new, key, expected) in [
        *(("comparisons", COMPARISON, wrong) for wrong in WRONG_COMPARISONS),
        *(("alarms", ALARM, wrong) for wrong in WRONG_ALARMS),
    ]:
        with row(old, new), pytest.raises(DefinitionError) as refused:
            load(tmp_path, text.replace(old, new, 1), DISTRIBUTIONS)
        assert refused.value.key == f"{table}.{key}"
        assert expected in refused.value.expected
        assert str(tmp_path / "metrics.toml") in str(refused.value)


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    for text in ("comparisons = 1\n", "[alarms]\nmoved = 1\n"):
        (tmp_path / "metrics.toml").write_text(text + METRICS, encoding="utf-8")
        with row(text), pytest.raises(DefinitionError, match="table"):
            MetricDefinitions.load(tmp_path / "metrics.toml")


def test_a_change_of_an_alarm_alone_is_taken_over(tmp_path: Path) -> None:
    before = load(tmp_path, ALARM)
    live = LiveMetrics(tmp_path / "metrics.toml")
    held = current(live)
    assert alarms_of(live) == before.tables["alarms"]
    assert not live.refresh()
    after = load(tmp_path, ALARM, "least = 0.25\n")
    os.utime(tmp_path / "metrics.toml", (1, 1))
    assert live.refresh()
    assert alarms_of(live) == after.tables["alarms"]
    assert current(live) is not held


def test_a_file_is_read_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody saves it in place: right after it is read, it ends in the middle of a table."""
    before = load(tmp_path, COMPARISON)
    live = LiveMetrics(tmp_path / "metrics.toml")
    whole, read = METRICS + COMPARISON + ALARM, Path.read_text

    def read_and_save(path: Path, **options: str) -> str:
        text = read(path, **options)
        path.write_text(whole[:-30], encoding="utf-8")
        return text

    monkeypatch.setattr(Path, "read_text", read_and_save)
    os.utime(tmp_path / "metrics.toml", (1, 1))
    assert not live.refresh()  # nothing has changed yet
    assert not live.refresh()
    assert "TOML" in live.unusable
    assert comparisons_of(live) == before.tables["comparisons"]


def test_a_config_map_that_kubernetes_replaces_is_followed(tmp_path: Path) -> None:
    """A kubelet writes a folder beside the old one, and renames the link to it."""
    for name, text in (("..1", METRICS), ("..2", METRICS + ALARM)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.toml").write_text(text, encoding="utf-8")
        os.utime(tmp_path / name / "metrics.toml", (1, 1))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "metrics.toml").symlink_to("..data/metrics.toml")
    live = LiveMetrics(tmp_path / "metrics.toml")
    (tmp_path / "..data_tmp").symlink_to("..2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert live.refresh()
    assert alarms_of(live)


def test_a_metric_whose_reports_will_be_refused_is_logged_as_a_warning(tmp_path: Path) -> None:
    one = '[metrics.{}]\nkind = "mean"\nrange = [0, {}]\nlevels = [1]\nlateness = "{}"\n'
    whole = one.format("a", 1, "5m") + one.format("b", 1, "5m")
    cases = [
        (one.format("b", 1, "5m"), "warning", ["a"]),
        (whole.replace("[0, 1]", "[0, 2]"), "warning", []),
        (whole.replace("5m", "6m"), "info", []),
        (whole + one.format("c", 1, "5m"), "info", []),
    ]
    for text, level, removed in cases:
        (tmp_path / "metrics.toml").write_text(whole, encoding="utf-8")
        live = LiveMetrics(tmp_path / "metrics.toml")
        (tmp_path / "metrics.toml").write_text(text, encoding="utf-8")
        live.force_refresh()
        with row(text), capture_logs() as logs:
            assert live.refresh()
            assert [(line["log_level"], line["removed"]) for line in logs] == [(level, removed)]


def test_a_metric_whose_sums_redis_cannot_store_is_refused(tmp_path: Path) -> None:
    levels = [round(0.1 + 0.01 * i, 2) for i in range(255)]
    words = f'words = {{kind = "frequency", categories = "open", levels = {levels}}}\n'
    file = tmp_path / "metrics.toml"
    file.write_text("[metrics]\n" + words)
    with pytest.raises(DefinitionError, match=r"words\.levels .* at most 536,870,912 bytes"):
        MetricDefinitions.load(file)
