"""The dashboard's modules that need no page: numbers, times, steps of a history, and the stream."""

import json
from typing import Any

from aggregator.features.comparisons.changes import OFFERED_PERIODS
from tests.services.browser.conftest import Modules
from tests.support.paths import ROOT
from tests.support.rows import row

HISTORY = """
async (panes) => {
  const {Metric} = await load("metric.js");
  const told = [];
  const draw = async (definition, place, steps, answer, least = 0) => {
    const asked = [];
    globalThis.fetch = async (path) => {
      const step = new URL(path, location.href).searchParams.get("step");
      if (step) asked.push(step);
      if (step && Number.parseFloat(step) < least) return Response.json({}, {status: 400});
      return Response.json(answer(Number.parseFloat(step ?? "0")));
    };
    const shared = {name: "m", kind: "mean", shape: "number"};
    const metric = new Metric({...shared, ...definition}, place, {top: 1, steps, changed() {}});
    while (!metric.points.length) await new Promise((resolve) => setTimeout(resolve, 5));
    metric.close();
    told.push([asked.at(-1), metric.points.length]);
    return metric;
  };
  const day = (step) => ({
    status: "final", reports: 2160, value: 1, step_seconds: step,
    points: Array.from({length: Math.floor(86400 / step)}, (_, i) => ({
      from: new Date(1000 * i * step).toISOString(),
      to: new Date(1000 * (i + 1) * step).toISOString(),
      status: step >= 3600 ? "final" : "too_few_reports", reports: step / 40, value: 1,
    })),
  });
  const enough = await draw({pane_seconds: 900, minimum_reports: 90}, {metric: "m"}, 96, day);
  told.push(enough.points.every(({status}) => status === "final"));
  const wide = {pane_seconds: 60, minimum_reports: 1};
  const last = {metric: "m", window: "24h"};
  const coarse = await draw(wide, last, 96, (step) => day(step || 3600), 3600);
  told.push(coarse.step);
  const point = {from: "2026-01-01", to: "2026-01-02", status: "final", reports: 1, value: 1};
  const one = () => ({status: "final", reports: 1, value: 1, points: [point], step_seconds: 60});
  const hour = {metric: "m", window: "1h"};
  for (const pane_seconds of panes) await draw({pane_seconds}, hour, 60, one);
  return told;
}
"""


def test_both_promises_of_a_crowd_are_told(device: Modules) -> None:
    central = {"epsilon": 0.232, "delta": 1e-8, "crowd": 8999}
    tell = "async (all) => all.map((await load('parts.js')).crowdText)"
    told = device.evaluate(tell, [{"local": 3, "central": central}, {"local": 12, "central": None}])
    assert "ε = 3, whoever colludes; among 8\u202f999 others" in told[0]
    assert "ε = 0.232 with δ = 1·10⁻⁸, in one pane: times the panes" in told[0]
    assert "nothing smaller is proved" in told[1]


def test_a_history_has_steps_of_whole_panes_with_enough_reports(device: Modules) -> None:
    """24 reports in a pane of 15 minutes, and 90 are needed: 90 in an hour, 180 in two.

    Where the server refuses so many points, it has as many as the server takes.
    """
    found = device.evaluate(HISTORY, [0.7, 4.1, 60])
    assert found[:4] == [["10800s", 8], True, ["900s", 24], 3600]
    assert found[4:] == [["60.2s", 1], ["61.5s", 1], ["60s", 1]]


def test_times_of_a_link_are_in_utc_as_the_server_reads_them(device: Modules) -> None:
    expected = {
        "from=2026-01-01T12:00&to=2026-01-02T00:00%2B05:45&window=24h": [
            *("2026-01-01T12:00Z", "2026-01-02T00:00+05:45", None, "#metric=m")
        ],
        "from=2026-01-01&to=2026": ["2026-01-01", None, None, "#metric=m"],
        "window=24h&by=a": [None, None, "24h", "#metric=m&window=24h&by=a"],
        "window=25h": [None, None, None, "#metric=m"],
    }
    found = device.evaluate(
        """async (hashes) => {
          const {address, place} = await load("place.js");
          return hashes.map((hash) => {
            location.hash = `#${hash}`;
            const {from, to, window} = place();
            return [from, to, window, address({metric: "m", from: null, to: null})];
          });
        }""",
        [*expected],
    )
    assert found == [*expected.values()]


def test_events_are_read_however_they_are_cut(device: Modules) -> None:
    text = (
        ': hello\r\n\r\nid: a-1\nevent: estimate\ndata: {"x":\ndata: 1}\n\nretry: 70\n\rdata: é\r\r'
    )
    found = device.evaluate(
        """async (text) => {
          const {EventParser} = await load("stream.js");
          const results = new Set();
          for (let size = 1; size <= text.length; size++) {
            const events = [], retries = [];
            const parser = new EventParser((event) => events.push(event), (ms) => retries.push(ms));
            for (let at = 0; at < text.length; at += size) parser.feed(text.slice(at, at + size));
            parser.feed("\\n");
            results.add(JSON.stringify({events, retries}));
          }
          return [...results];
        }""",
        text,
    )
    assert found == [
        '{"events":[{"type":"estimate","data":"{\\"x\\":\\n1}","id":"a-1"},'
        '{"type":"message","data":"é","id":"a-1"}],"retries":[70]}'
    ]


def test_a_stream_that_ends_is_asked_for_again_from_its_last_event(device: Modules) -> None:
    found = device.evaluate(
        """async () => {
          const {follow} = await load("stream.js");
          const asked = [], states = [], events = [];
          const piece = (id) => `id: ${id}\\ndata: {"n": ${id}}\\n\\nretry: 1\\n`;
          const answers = [
            () => new Response(piece(1)), () => { throw new TypeError("nobody"); },
            () => Response.json({detail: "who?"}, {status: 401}), () => new Response(piece(2)),
            () => new Response(new ReadableStream({})),
          ];
          let stream;
          await new Promise((resolve) => {
            globalThis.fetch = async (path, {headers}) => {
              asked.push(headers["Last-Event-ID"] ?? null);
              if (answers.length === 1) setTimeout(resolve);
              return answers.shift()();
            };
            stream = follow(() => "/v1/events", {
              onEvent: ({data}) => events.push(data.n), onState: (state) => states.push(state),
            });
          });
          stream.stop();
          return [asked, events, states];
        }"""
    )
    again = ["live", "reconnecting"]
    assert found[:2] == [[None, "1", "1", "1", "2"], [1, 2]]
    assert found[2][:-1] == ["connecting", *again, "reconnecting", "refused", *again]


def test_a_stream_of_something_else_begins_at_once_with_its_latest_events(device: Modules) -> None:
    found = device.evaluate(
        """async () => {
          const {follow} = await load("stream.js");
          const asked = [], states = [];
          globalThis.fetch = async (path, {headers, signal}) => {
            asked.push([path, headers["Last-Event-ID"] ?? null]);
            return new Response(new ReadableStream({start(stream) {
              stream.enqueue(new TextEncoder().encode("id: 1\\ndata: 1\\n\\n"));
              signal.addEventListener("abort", () => stream.error(signal.reason));
            }}));
          };
          let path = "/one", stream;
          await new Promise((resolve) => {
            stream = follow(() => path, {
              onState: (state) => states.push(state),
              onEvent() {
                if (path === "/other") return resolve();
                path = "/other";
                stream.again();
              },
            });
          });
          stream.stop();
          return [asked, states];
        }"""
    )
    assert found == [[["/one", None], ["/other", None]], ["connecting", "live", "live"]]


def test_a_history_is_read_again_soon_if_event_time_moves_on(device: Modules) -> None:
    found = device.evaluate(
        """async () => {
          const {Refresher} = await load("metric.js");
          const now = performance.now;
          let clock = 0, reads = 0;
          performance.now = () => clock;
          const refresher = new Refresher(1e6, () => true, async () => { reads += 1; }, 1);
          const counts = [];
          for (const step of ["now", "soon", "hasten", "hasten"]) {
            refresher[step]();
            await new Promise((resolve) => setTimeout(resolve));  // after the refresher's timer
            counts.push(reads);
            clock += 20;
          }
          refresher.stop();
          performance.now = now;
          return counts;
        }"""
    )
    assert found == [1, 1, 2, 2]


def test_a_release_is_drawn_soon_though_it_comes_later_than_its_reports(device: Modules) -> None:
    found = device.evaluate(
        """async () => {
          const {Metric} = await load("metric.js");
          const points = [{from: "2026-01-01", to: "2026-01-02", status: "final", value: 1}];
          const answer = {status: "final", value: 1, points, step_seconds: 60};
          globalThis.fetch = async () => Response.json(answer);
          const isDrawnSoon = [];
          for (const trust of ["central", "local"]) {
            const definition = {name: "m", kind: "mean", shape: "number", pane_seconds: 60, trust};
            const metric = new Metric(definition, {}, {top: 1, steps: 96, changed() {}});
            while (!metric.points.length) await new Promise((resolve) => setTimeout(resolve, 5));
            metric.take(answer);
            const {next, soonest} = metric.refresh.series;
            isDrawnSoon.push(next <= soonest);
            metric.close();
          }
          return isDrawnSoon;
        }"""
    )
    assert found == [True, False]


def test_a_stream_that_is_silent_is_not_shown_as_live(device: Modules) -> None:
    """The server says something every 15 seconds; here, a second takes a millisecond."""
    found = device.evaluate(
        """async () => {
          const {follow} = await load("stream.js");
          const timer = globalThis.setTimeout, states = [];
          globalThis.setTimeout = (task, ms = 0) => timer(task, ms / 1000);
          globalThis.fetch = async (_, {signal}) => new Response(new ReadableStream({
            start: (stream) => signal.addEventListener("abort", () => stream.error(signal.reason)),
          }));
          let stream;
          await new Promise((resolve) => {
            const onState = (state) => { if (states.push(state) > 2) resolve(); };
            stream = follow(() => "/v1/events", {onEvent() {}, onState});
          });
          stream.stop();
          globalThis.setTimeout = timer;
          return states;
        }"""
    )
    assert found == ["connecting", "live", "reconnecting"]


def test_live_is_said_if_somebody_counts(device: Modules) -> None:
    found = device.evaluate(
        """async (all) => {
          const {liveness} = await load("operations.js");
          return all.map((status) => liveness(status)).map(({counting, text}) => [counting, text]);
        }""",
        [
            {"redis": "ok", "counting": True, "metrics": {"a": {"reports_per_second": 0.1}}},
            {"redis": "ok", "counting": True, "metrics": {"a": {"reports_per_second": None}}},
            {"redis": "ok", "counting": True, "metrics": {"a": {"reports_per_second": 0}}},
            {"redis": "ok", "counting": False, "silent_since": None},
            {"redis": "ok", "counting": False, "silent_since": "2013-03-04T14:05:59Z"},
            {"redis": "Redis does not answer: refused", "counting": True},
            {"redis": "wrong version", "counting": True},
        ],
    )
    assert [text for _, text in found[:3]] == ["Live", "Live", "Idle"]
    assert found[3] == [False, "No worker has counted yet"]
    assert found[4][1].replace("\u00a0", " ") == "No worker has counted since 4 Mar 2013 14:05"
    assert found[5:] == [[None, "Redis does not answer"], [None, "Redis cannot be read"]]


def test_the_running_total_is_no_answer_to_another_window_or_other_weights(device: Modules) -> None:
    places: list[dict[str, str]] = [{}, {"window": "24h"}, {"from": "2026-01-01"}]
    found = device.evaluate(
        """async (all) => {
          const {Metric} = await load("metric.js");
          globalThis.fetch = () => new Promise(() => {});
          const definition = {
            name: "m", kind: "mean", shape: "number", pane_seconds: 60, policy: "optimal",
          };
          return all.map(([place, policy]) => {
            const metric = new Metric(definition, place, {top: 1, steps: 60, changed() {}});
            metric.take({status: "provisional", value: 2, policy});
            metric.close();
            return metric.answer?.value ?? null;
          });
        }""",
        [[{}, "uniform"], *([asked, "optimal"] for asked in places)],
    )
    assert found == [None, 2, None, None]


def test_a_card_tells_the_change_of_its_number_or_else_the_surest(device: Modules) -> None:
    told = device.evaluate(
        """async (all) => {
          const {Metric} = await load("metric.js");
          globalThis.fetch = () => new Promise(() => {});
          const categories = ["a", "b", "c"];
          const definition = {name: "m", kind: "frequency", categories, pane_seconds: 60};
          const metric = new Metric(definition, {}, {top: 3, steps: 0, changed() {}});
          metric.close();
          metric.answer = {categories, value: [0.5, 0.3, 0.2]};
          return all.map((p_value) => {
            metric.comparisons = [{categories, value: [1, 2, 3], p_value, beta: 0.05}];
            const {value, name = "", isCertain} = metric.toldChange();
            return [value, name, isCertain];
          });
        }""",
        [[0.04, 0.01, 1], [0.2, 0.03, 0.01], [0.2, 1, 1]],
    )
    assert told == [[1, "", True], [3, "c", True], [1, "", False]]


def test_an_answer_of_longer_steps_is_wider_than_what_was_asked(device: Modules) -> None:
    march = {"from": "2013-03-01T00:00:00Z", "to": "2013-04-01T00:00:00Z"}
    weeks = {"from": "2013-02-28T00:00:00Z", "to": "2013-04-25T00:00:00Z"}
    days = {"from": "2013-02-28T00:00:00Z", "to": "2013-04-02T00:00:00Z"}
    everything = {"from": None, "to": None}
    rows: list[tuple[dict[str, str], dict[str, Any], bool]] = [
        (march, weeks, True), (march, days, False), ({"window": "30d"}, weeks, True),
        ({}, everything, False), ({"from": march["from"]}, weeks, False),
    ]  # fmt: skip
    found = device.evaluate(
        """async (rows) => {
          const {Metric} = await load("metric.js");
          return rows.map(([place, answer]) => {
            const metric = Object.create(Metric.prototype, {
              place: {value: place}, definition: {value: {pane_seconds: 86400}},
            });
            return metric.isWider(answer);
          });
        }""",
        [row[:2] for row in rows],
    )
    assert found == [expected for *_, expected in rows]


def test_slices_by_another_attribute_are_not_shown(device: Modules) -> None:
    found = device.evaluate(
        """async () => {
          const {Metric} = await load("metric.js");
          const answers = [];
          globalThis.fetch = (path) => new Promise((resolve) => {
            const {searchParams} = new URL(path, location.href);
            const by = searchParams.get("by");
            if (by) answers.push(() => resolve(Response.json(by)));
          });
          const definition = {name: "m", kind: "mean", shape: "number", by: ["a", "b"]};
          const how = {top: 1, steps: 60, isDetailed: true, changed() {}};
          const metric = new Metric(definition, {by: "a"}, how);
          const shown = [];
          for (const next of ["b", null]) {
            while (!answers.length) await new Promise((resolve) => setTimeout(resolve, 5));
            if (next) metric.show({by: next});
            answers.shift()();
            for (let i = 0; i < 20; i += 1) await new Promise((resolve) => setTimeout(resolve));
            shown.push(metric.slices);
          }
          metric.close();
          return shown;
        }"""
    )
    assert found == [None, "b"]


def test_shares_are_a_funnel_if_they_are_steps_and_else_have_words(device: Modules) -> None:
    steps = ["none", "visit", "cart", "paid"]
    tables: list[tuple[list[str], list[str], list[str]]] = [
        (["visit..", "cart.. / visit..", "paid / cart.."], steps,
         ["all → visit", "visit → cart", "cart → paid"]),
        (["cart.. / visit..", "paid / visit.."], steps, ["visit → cart", "visit → paid"]),
        (["paid / cart..", "cart.. / visit.."], steps,
         ["", "paid, of cart or later", "cart or later, of visit or later"]),
        (["cart + paid / visit..", "paid / cart.."], steps,
         ["", "cart or paid, of visit or later", "paid, of cart or later"]),
        (["x=yes, age=30.. / x=yes"], ["x=yes, age=30", "x=no, age=30"],
         ["", "x = yes, age = 30 or later, of x = yes"]),
        (["a / b.. / b..", "c / b.."], ["a / b", "b", "c"],
         ["", "a / b.. / b..", "c, of b or later"]),
        (["b.. / a.."], ["a", "a..", "b"], ["", "b or later, of a or later"]),
    ]  # fmt: skip
    shown = device.evaluate(
        """async (tables) => {
          const {sharesOf} = await load("shares.js");
          return tables.map(([shares, categories]) => {
            const {isFunnel, names} = sharesOf({shares, categories});
            return [...(isFunnel ? [] : [""]), ...names.map(({name}) => name)];
          });
        }""",
        [table[:2] for table in tables],
    )
    assert shown == [names for *_, names in tables]


def test_history_is_of_the_shares_while_one_is_in_front(device: Modules) -> None:
    """At first one is, but not where they have no bounds; the answer itself has them beside."""
    asked = device.evaluate(
        """async () => {
          const {Metric} = await load("metric.js");
          let asked = [];
          let answer = {shares_among: {value: [0.5], lower: [0], upper: [1]}};
          globalThis.fetch = async (path) => {
            const {pathname, searchParams} = new URL(path, location.href);
            asked.push([pathname.split("/").at(-1), searchParams.getAll("category").join()]);
            const points = [{from: "2013-01-01", to: "2013-01-02"}];
            const all = {categories: ["a", "b"], value: [0.5, 0.5], lower: [0, 0], upper: [1, 1]};
            return Response.json({...all, ...answer, points, step_seconds: 60});
          };
          const definition = {
            name: "m", kind: "frequency", shape: "named numbers", pane_seconds: 60,
            categories: ["a", "b"], shares: ["a / a + b"],
          };
          const how = {top: 1, steps: 1, isDetailed: true, changed() {}};
          const metric = new Metric(definition, {window: "24h"}, how);
          const settled = [];
          globalThis.history = {replaceState() {}};
          const refuse = () => { answer = {}; metric.chosen = null; metric.again(); };
          for (const next of [null, () => metric.choose("b"), refuse]) {
            asked = [];
            next?.();
            for (let i = 0; i < 60; i += 1) await new Promise((resolve) => setTimeout(resolve, 2));
            const last = (what) => asked.filter(([name]) => name === what).at(-1)?.[1];
            settled.push([last("estimate"), last("series"), metric.leading().label]);
          }
          metric.close();
          return settled;
        }"""
    )
    share = "a / a + b"
    assert asked == [["", share, share], [None, "", "b"], ["", "", "a"]]


FORMATS = """
async () => {
  const f = await load("format.js");
  const share = new f.Scale("frequency", ""), delay = new f.Scale("mean", "minutes");
  const at = (text) => Date.parse(text) / 1000;
  return {
    wide: delay.interval(-3.04159, 41.2), narrow: delay.interval(12.34012, 12.34578),
    zero: delay.text(-0.04, 1), negative: delay.withUnit(-1234.5, 1), none: delay.text(null, 2),
    percent: share.withUnit(0.17123, share.digits(0.160, 0.184)),
    yes: new f.Scale("mean", "", [0, 1]).unit, of: new f.Scale("mean", "GB", [0, 1]).unit,
    rated: new f.Scale("mean", "", [0, 5]).unit,
    quantiles: ["0.5", "0.95", "0.999", "0.25"].map(f.quantileName),
    counts: [999, 9999, 56789, 2_000_000, 3.4e9].map(f.count), rates: [0, 0.25, 1500].map(f.rate),
    tiny: f.probability(3.2e-7), usual: f.probability(0.25),
    durations: [5, 90, 7200, 86400].map(f.duration),
    moment: f.moment(at("2013-03-04T14:05Z")), day: f.moment(at("2013-03-04T00:00Z")),
    stretch: f.stretch(at("2013-03-04T00:00Z"), at("2013-03-11T00:00Z")),
    open: f.stretch(at("2013-03-04T00:00Z"), at("9999-01-01T00:00Z")),
    all: f.stretch(null, null),
    months: f.ticks(["2013-12-01", "2014-01-01", "2014-02-01"].map(at), 28 * f.DAY),
    hours: f.ticks(["2013-12-31T22:00Z", "2014-01-01T00:00Z"].map(at), 7200),
  };
}
"""
VECTORS = """
async (vectors) => {
  const f = await load("format.js");
  const of = {
    down: (x, digits) => f.bound(x, digits, -1), up: (x, digits) => f.bound(x, digits, 1),
    decimals: f.decimals, certainty: f.certainty, percent: f.percent,
    certified: f.certified, loss: f.loss,
  };
  const ascii = (x) => x.replace(/[\\u202f\\u00a0]/g, "").replace("\\u2212", "-");
  const plain = (x) => typeof x === "string" ? ascii(x) : x;
  return Object.entries(vectors).flatMap(([name, rows]) => rows
    .map((row) => [name, ...row, plain(of[name](...row.slice(0, -1)))])
    .filter((row) => row.at(-1) !== row.at(-2)));
}
"""


def test_bounds_and_probabilities_are_rounded_as_in_python(device: Modules) -> None:
    vectors = json.loads((ROOT / "tests" / "vectors" / "rounding.json").read_text())
    assert device.evaluate(VECTORS, vectors) == []


def test_numbers_are_as_fine_as_their_band_and_times_are_utc(device: Modules) -> None:
    found = device.evaluate(FORMATS)
    plain = {"\u202f": " ", "\u00a0": " ", "\N{MINUS SIGN}": "-", "\N{EN DASH}": "-"}

    def told(shown: Any) -> Any:
        if isinstance(shown, list):
            return [told(one) for one in shown]
        return shown.translate(str.maketrans(plain))

    assert {name: told(shown) for name, shown in found.items()} == {
        "wide": "-4 to 42",
        "narrow": "12.3401 to 12.3458",
        "zero": "0.0",
        "negative": "-1 234.5 minutes",
        "none": "-",
        "percent": "17.1 %",
        "yes": "%",
        "of": "GB",
        "rated": "",
        "quantiles": ["median", "p95", "p99.9", "p25"],
        "counts": ["999", "9 999", "56.8k", "2.0M", "3.4G"],
        "rates": ["0", "0.3", "1 500"],
        "tiny": "3·10⁻⁷",
        "usual": "0.250",
        "durations": ["5 s", "1.5 min", "2 h", "1 d"],
        "moment": "4 Mar 2013 14:05",
        "day": "4 Mar 2013",
        "stretch": "4 Mar - 11 Mar 2013",
        "open": "since 4 Mar 2013",
        "all": "everything counted so far",
        "months": ["Dec", "Jan\n2014", "Feb"],
        "hours": ["22:00\n31 Dec", "00:00\n1 Jan"],
    }


STANDING = """
async (bands) => {
  const {direction, verdict} = await load("comparisons.js");
  const [was, now] = bands.map(([lower, upper]) => direction(lower, upper, 0));
  return verdict({}, true, now, {before: was, when: "noon", far: "2"}, 0.5);
}
"""


def test_a_decision_of_before_is_told_beside_what_holds_now(device: Modules) -> None:
    """Each row: the band when it was decided, the band now, and what is said of now."""
    was = "Decided on noon: the first arm was"
    for before, now, told in (
        ([1, 3], [2, 3], f"{was} above the second, by 2. If both"),
        ([-3, -1], [-1, 2], f"{was} below the second, by 2. Now both may be equal (p = 0.500)."),
        ([-3, -1], [1, None], f"{was} below the second, by 2. Now it is above it. If both"),
    ):
        with row(told):
            assert device.evaluate(STANDING, [before, now]).startswith(told)


TICKS: dict[str, tuple[list[Any], list[float]]] = {
    "decimal": ([0.3, 31, 4], [10, 20, 30]),
    "below one": ([0, 0.09, 4], [0, 0.05]),
    "minutes": ([-8, 40, 4, "minutes"], [0, 15, 30]),
    "hours": ([0, 30, 4, "hours"], [0, 12, 24]),
    "large": ([0, 90_000, 5], [0, 20_000, 40_000, 60_000, 80_000]),
    "a flat line": ([5, 5.0001, 4], [5, 5.00005, 5.0001]),
    "logarithmic": ([1.5, 2000, 4, "ms", True], [10, 100, 1000]),
    "logarithmic, one decade": ([2, 11, 4, "", True], [2, 5, 10]),
}


def test_a_chart_has_few_round_ticks(device: Modules) -> None:
    script = """async (all) => {
      const {roundTicks} = await load("history.js");
      return all.map((one) => roundTicks(...one));
    }"""
    found = device.evaluate(script, [given for given, _ in TICKS.values()])
    assert dict(zip(TICKS, found, strict=True)) == {name: told for name, (_, told) in TICKS.items()}


COLUMNS = """
async (points) => {
  const {columns} = await load("history.js");
  const {rows: [{from: first}], data: [x, , value, , vague]} = columns(points, null, [0, 100]);
  return [x.map((at) => (at - first) / 3600), value, vague];
}
"""


def test_a_step_has_its_width_before_a_gap_and_is_pale_if_nothing_is_known(device: Modules) -> None:
    bands = {0: (10, 9, 11), 1: (12, 11, 13), 4: (20, 0, 95), 5: (None, None, None), 6: (9, 8, 10)}
    points = [
        dict(zip(("value", "lower", "upper"), band, strict=True))
        | {"from": f"2026-01-01T0{hour}:00Z", "to": f"2026-01-01T0{hour + 1}:00Z"}
        | {"status": "final", "reports": 9}
        for hour, band in bands.items()
    ]
    found = device.evaluate(COLUMNS, points)
    assert found[0] == [0, 1, 1, 2, 2, 4, 5, 5, 5, 6, 6, 7]
    assert found[1] == [10, 10, 12, 12, None, None, None, None, None, None, 9, 9]
    assert found[2] == [*[None] * 5, 20, 20, *[None] * 5]


EPISODES = """
async (raised) => {
  const {episodes, mainEpisode} = await load("alarms.js");
  const day = (at) => new Date(Date.UTC(2026, 0, at)).toISOString();
  const all = raised.map(([since, at, direction, value, slice]) => ({
    since: day(since), at: day(at), direction, slice, now: {value}, baseline: {value: 10},
  }));
  const first = Date.parse(day(1)) / 1000;
  const alarm = {raised: all, every_seconds: 86400};
  const main = [17, 30].map((until) => mainEpisode([{...alarm, until: day(until)}]));
  const row = ({name, from, to, count, peak}) =>
    [name, (from - first) / 86400 + 1, (to - first) / 86400 + 1, count, peak.now.value];
  return {all: episodes(alarm).map(row), main: main.map((one) => [...row(one), one.isOpen])};
}
"""


def test_alarms_that_follow_each_other_are_one_episode(device: Modules) -> None:
    """Each row: from when, until when, direction, value and slice of an alarm that was raised."""
    de: dict[str, str] = {"country": "DE"}
    raised: list[list[Any]] = [
        [2, 3, "up", 14, {}],
        [3, 4, "up", 20, {}],
        [3, 4, "up", 12, de],
        [4, 5, "down", 1, {}],
        [8, 9, "up", 13, {}],
        [15, 16, "up", 12, {}],
    ]
    found = device.evaluate(EPISODES, raised[::-1])
    assert found["all"] == [
        ["", 15, 16, 1, 12],
        ["", 4, 5, 1, 1],
        ["DE", 3, 4, 1, 12],
        ["", 2, 9, 3, 20],
    ]
    goes_on, largest = found["main"]
    assert (goes_on, largest) == (["", 15, 16, 1, 12, True], ["", 2, 9, 3, 20, False])


def test_the_page_offers_the_periods_that_share_an_error(device: Modules) -> None:
    found = device.evaluate('async () => (await load("place.js")).WINDOWS.map(([key]) => key)')
    assert found == [*OFFERED_PERIODS, ""]
