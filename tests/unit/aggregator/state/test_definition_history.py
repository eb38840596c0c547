"""The stored definitions are those in force."""

from aggregator.state.definition_history import CountingDefinitions
from estimators import define

AXES = {"used_x": ["no", "yes"], "crashed": ["no", "yes"]}


def test_axes_keep_their_order() -> None:
    crash = define(name="crash", kind="frequency", categories=AXES, levels=[1])
    swapped = define(
        name="crash", kind="frequency", categories=dict(reversed(AXES.items())), levels=[1]
    )
    stored = CountingDefinitions({"crash": crash}, {})
    assert CountingDefinitions.decode(stored.encode()).metrics["crash"].revision == crash.revision
    assert stored.digest != CountingDefinitions({"crash": swapped}, {}).digest
