"""`import dither` offers every public name, and loads nothing before its first use."""

import re
from pathlib import Path

import dither
import estimators
from tests.support.base_install import link_base_requirements, run_as_device

PROGRAM = """import sys, dither
print({"aggregator", "estimators", "producers", "numpy", "redis"} & sys.modules.keys())
for name in [*dither.__all__, "Reportr"]:
    try: assert getattr(dither, name).__name__ == name
    except (AttributeError, ModuleNotFoundError) as error: print(name, error)"""
OTEL = r"DitherMetricExporter .*\[otel\].*\nEachExport .*\[otel\].*\nGathered .*\[otel\].*\n"
TOLD = rf"set\(\)\n{OTEL}Reader .*\[server\]'\nReportr .*: did you mean 'Reporter'.*\n"


def test_every_name_is_typed_and_on_a_device_or_told_its_extra(tmp_path: Path) -> None:
    link_base_requirements(tmp_path)
    assert re.fullmatch(TOLD, run_as_device(tmp_path, PROGRAM).stdout)
    assert {*dir(dither)} == {*dither.__all__, "__version__"}
    typed = re.findall(r"    from (\S+) import (\w+) as \2\n", Path(dither.__file__).read_text())
    typed += [("estimators", name) for name in estimators.__all__]
    assert {name: home for home, name in typed} == dither._HOME_MODULES
