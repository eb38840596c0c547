"""A worker's memory follows the limit of the container that it runs in."""

from pathlib import Path

import pytest

from aggregator.config import container_memory
from aggregator.config.container_memory import Limit, memory_limit
from aggregator.config.settings import container_share, in_force, load_settings
from aggregator.counting.supervisor import single_worker_command

GIB = 1 << 30


def written(root: Path, name: str, text: str) -> Path:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("groups", "place"),
    [
        ("0::/\n", "memory.max"),
        ("0::/system.slice/dither.service\n", "system.slice/dither.service/memory.max"),
        ("0::/system.slice/dither.service\n", "system.slice/memory.max"),
        ("7:cpu:/x\n4:memory:/docker/abc\n0::/\n", "memory/docker/abc/memory.limit_in_bytes"),
        ("4:cpu,memory:/docker/abc\n", "memory/memory.limit_in_bytes"),
    ],
)
def test_limits_of_both_versions_are_found_above(tmp_path: Path, groups: str, place: str) -> None:
    own, root = written(tmp_path, "cgroup", groups), tmp_path / "root"
    assert memory_limit(root, own) is None
    file = written(root, place, f"{GIB}\n")
    assert memory_limit(root, own) == Limit(GIB, file)


def test_the_least_limit_holds_and_no_limit_is_none(tmp_path: Path) -> None:
    own, root = written(tmp_path, "cgroup", "0::/a/b\n"), tmp_path / "root"
    written(root, "a/b/memory.max", "max\n")
    written(root, "memory.max", f"{3 * GIB}\n")
    least = written(root, "a/memory.max", f"{2 * GIB}\n")
    assert memory_limit(root, own) == Limit(2 * GIB, least)
    written(root, "cgroup1", "4:memory:/\n")
    written(root, "memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert memory_limit(root, root / "cgroup1") is None
    assert memory_limit(root, tmp_path / "not on Linux") is None


@pytest.fixture
def one_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = Limit(GIB, container_memory.CGROUP_ROOT / "memory.max")
    monkeypatch.setattr(container_memory, "memory_limit", lambda: limit)


def test_memory_is_half_of_the_containers_limit_and_says_so(one_gib: None) -> None:
    found = load_settings(environ={})
    assert found.aggregate.memory == GIB // 2
    shown = {key: (value, source) for key, value, source in in_force(found)}
    source = "half of the container's limit, /sys/fs/cgroup/memory.max"
    assert shown["aggregate.memory"] == (GIB // 2, source)


def test_several_workers_share_the_containers_memory(one_gib: None) -> None:
    share = container_share(load_settings(environ={}), 4)
    assert share == GIB // 8
    command = single_worker_command(["aggregate", "--workers", "4"], share)
    assert command[-4:] == ["--set", f"aggregate.memory={GIB // 8}", "--workers", "1"]
