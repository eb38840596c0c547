"""The query parameters of the API, with their types, checks and descriptions."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta
from starlette.requests import Request

from aggregator.reading.query import MAX_WINDOWS, conditions
from aggregator.timestamps import DIGITS_HINT, parse_time
from aggregator.web.http.problem_responses import invalid_as_problem
from estimators import durations
from estimators.errors import meant, readable, shortened

Q = TypeVar("Q", bound=msgspec.Struct)

DURATION_PATTERN = r"^\d{1,9}(\.\d{1,3})?(ms|s|m|h|d|w)$"
SECONDS_SCHEMA = {"type": "string", "pattern": r"^(?!\d{4,8}$)\d{1,10}(\.\d{1,3})?$"}
DATE_TIME_SCHEMA = {"type": "string", "format": "date-time"}
DATE_SCHEMA = {"type": "string", "format": "date"}
Time = Annotated[
    str,
    Meta(
        description="An event time: ISO 8601 (UTC unless it has a time zone), or seconds since "
        "the epoch, not as 4 to 8 or 12 digits alone, which could be a year or a date.",
        examples=["2013-01-31T17:00:00Z", "1359651600"],
        extra_json_schema={"anyOf": [DATE_TIME_SCHEMA, DATE_SCHEMA, SECONDS_SCHEMA]},
    ),
]
Duration = Annotated[
    str,
    Meta(
        pattern=DURATION_PATTERN, description="A duration, as in 30s, 5m, 1h, 1d.", examples=["1h"]
    ),
]
Beta = Annotated[float, Meta(ge=1e-9, le=0.999, description="Failure probability of the bounds.")]
Policy = Literal["optimal", "paper", "uniform", "proportional"]
Categories = Annotated[
    list[Annotated[str, Meta(max_length=1000)]],
    Meta(
        max_length=1000,
        description="Only these categories, or shares among some such as `paid / visit..`; may be "
        "repeated. With an open vocabulary: any string.",
    ),
]
Quantiles = Annotated[
    list[Annotated[float, Meta(gt=0, lt=1)]],
    Meta(max_length=100, description="Of a distribution: only these quantiles; may be repeated."),
]
TOP_DESCRIPTION = "Number of categories or coordinates to keep, largest first."
Top = Annotated[int, Meta(ge=1, le=10_000, description=TOP_DESCRIPTION)]
LiveTop = Annotated[int, Meta(ge=1, le=1_000, description=TOP_DESCRIPTION)]
Metrics = Annotated[
    list[Annotated[str, Meta(max_length=64)]],
    Meta(max_length=1000, description="Only these metrics; may be repeated. Default: all."),
]
EventId = Annotated[
    str,
    Meta(max_length=100, description="Id of the last event seen, as in the header Last-Event-ID."),
]


Windows = Annotated[
    int,
    Meta(
        ge=1,
        le=MAX_WINDOWS,
        description="Number of windows, this one included, whose bounds hold together: for all "
        "final answers, and (a separate statement) for all answers while they grow.",
    ),
]
Simultaneous = Annotated[
    Literal["points"],
    Meta(
        description="points: the bounds of all points hold together: for the final ones, and (a "
        "separate statement) for all while they grow."
    ),
]
BinCount = Annotated[
    int,
    Meta(
        ge=2,
        le=64,
        description="Of a distribution: also its histogram at each step, a picture without bounds, "
        "with neighbouring bins merged into this many.",
    ),
]
WeightsFixed = Annotated[
    bool,
    Meta(
        description="Weights and target were chosen before looking at any answer. Otherwise, if "
        "you name one, beta is shared among all alternatives. The answer without a name is not "
        "among these."
    ),
]


By = Annotated[
    list[Annotated[str, Meta(max_length=64)]],
    Meta(
        max_length=16,
        description="An estimate for each value of this attribute of devices; may be repeated.",
    ),
]
Where = Annotated[
    list[Annotated[str, Meta(max_length=200)]],
    Meta(
        max_length=16,
        description="Only reports of devices with this value of an attribute, as in country=DE "
        "(other: a value that is not declared; none: devices that sent none); may be repeated.",
        examples=["country=DE"],
    ),
]


class WindowParameters(msgspec.Struct, kw_only=True, frozen=True):
    """Query parameters of estimates and of series."""

    start: Time | None = msgspec.field(name="from", default=None)
    end: Time | None = msgspec.field(name="to", default=None)
    window: Duration | None = None
    beta: Beta = 0.05
    weights: Policy | None = None
    weights_fixed: WeightsFixed = False
    categories: Categories = msgspec.field(name="category", default=[])
    quantile: Quantiles = []
    top: Top | None = None
    pointwise: bool = False
    by: By = []
    where: Where = []

    def fields(self) -> dict[str, Any]:
        """Return the fields of a :class:`aggregator.reading.query.Query`.

        Raises ValueError if an edge of the window is not a time.
        """
        query_fields = msgspec.structs.asdict(self)
        query_fields.pop("format", None)  # the format of the answer is not a field
        return query_fields | {
            "start": moment("from", self.start),
            "end": moment("to", self.end),
            "categories": self.categories or None,
            "quantiles": query_fields.pop("quantile"),
            "simultaneous": not query_fields.pop("pointwise"),
            "where": conditions(self.where),
        }


Format = Annotated[
    Literal["json", "csv"],
    Meta(
        description="csv: a table instead, with a row for each number. Text that a spreadsheet "
        "could take for a formula has an apostrophe in front."
    ),
]


class EstimateParameters(WindowParameters, kw_only=True, frozen=True):
    """Query parameters of an estimate."""

    format: Format = "json"

    windows: Windows = 1
    bound: Literal["auto", "fixed", "anytime", "normal"] = "auto"
    target: Literal["population", "sample"] = "population"


class SeriesParameters(WindowParameters, kw_only=True, frozen=True):
    """Query parameters of a series."""

    format: Format = "json"
    step: Duration | None = None
    all_points: Simultaneous | None = msgspec.field(name="simultaneous", default=None)
    bins: BinCount | None = None

    def fields(self) -> dict[str, Any]:
        """Return the fields of a :class:`aggregator.reading.query.SeriesQuery`, except `metric`."""
        return {**super().fields(), "all_points": self.all_points is not None}


class EventsParameters(msgspec.Struct, kw_only=True, frozen=True):
    """Query parameters of the stream of events."""

    metric: Metrics = []
    top: LiveTop | None = None
    last_event_id: EventId | None = None


@invalid_as_problem()
def parse(request: Request, query: type[Q]) -> Q:
    """Return a request's query parameters.

    Raises ValueError if a parameter is invalid; the decorator turns it into a Problem with status
    400.
    """
    fields = {field.encode_name: field for field in msgspec.structs.fields(query)}
    hints = get_type_hints(query)
    for name, field in fields.items():
        if field.required and name not in request.query_params:
            raise ValueError(f"parameter {name!r} is missing: expected it once")
    arguments: dict[str, Any] = {}
    for name in request.query_params:
        if name not in fields:
            raise ValueError(f"parameter {name!r}: {meant(name, fields)}")
        field, values = fields[name], request.query_params.getlist(name)
        is_list = get_origin(hints[field.name]) is list
        if len(values) > 1 and not is_list:
            raise ValueError(f"{name} = {shortened(values)}: expected it once")
        kind, value = _type_without_null(field.type), values if is_list else values[0]
        try:
            arguments[field.name] = msgspec.convert(value, kind, strict=False)
        except msgspec.ValidationError as error:
            expectation = _describe_expected(kind, value, error)
            raise ValueError(f"{name} = {shortened(value)}: {expectation}") from None
    return query(**arguments)


def _describe_expected(kind: Any, value: Any, error: msgspec.ValidationError) -> str:
    """Return what was expected of a parameter, even if the error does not say it."""
    if words := _words(kind):
        return meant(str(value), words)
    if kind == Duration:
        return f"expected {durations.EXPECTED_DURATION}"
    return f"expected {readable(error)}"


def _words(kind: Any) -> list[str]:
    """Return the words that a parameter allows; none if it is not limited to words."""
    if get_origin(kind) is Literal:
        return [*get_args(kind)]
    if get_origin(kind) is Annotated or get_origin(kind) is Union:
        return [word for alternative in get_args(kind) for word in _words(alternative)]
    return []


def _type_without_null(kind: Any) -> Any:
    """Return a parameter's type without its null, as null only stands for a missing parameter."""
    kinds = tuple(alternative for alternative in get_args(kind) if alternative is not type(None))
    return Union[kinds] if type(None) in get_args(kind) else kind  # noqa: UP007


def moment(name: str, text: str | None) -> float | None:
    """Return a time in seconds since the epoch; None for a missing parameter.

    Raises ValueError if the text is not a time.

    Examples
    --------
    >>> moment("from", "1970-01-02"), moment("from", "12.5"), moment("from", None)
    (86400.0, 12.5, None)
    """
    if text is None:
        return None
    try:
        return parse_time(text)
    except (ValueError, OverflowError):
        if re.search(r"T.* \d\d:?\d\d$", text):
            raise ValueError(f"{name} = {text!r}: write %2B for a + in an address") from None
        raise ValueError(
            f"{name} = {text!r}: expected a time such as 2013-01-31T17:00:00Z, or seconds since "
            f"the epoch; {DIGITS_HINT}"
        ) from None
