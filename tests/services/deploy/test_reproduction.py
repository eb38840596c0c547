"""docs/reproduction.md has every experiment, as it is, and can be made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy import reproduction
from reproduction.experiments import EXPERIMENTS
from tests.support.rows import row

PAGE = reproduction.PAGE.read_text()
BLOCKS = {block["name"]: block for block in reproduction.BLOCK.finditer(PAGE)}


def test_every_experiment_has_a_block_that_is_headed_as_its_command_heads_it() -> None:
    assert set(BLOCKS) == set(EXPERIMENTS)
    for name, experiment in EXPERIMENTS.items():
        block = BLOCKS[name]
        options = dict(zip(*[iter(block["options"].split())] * 2, strict=True))
        runs = options.get("--runs", str(experiment.runs))
        with row(name):
            assert block["printed"].startswith(
                f"{name}: {experiment.title}\n{experiment.source}. Data: {experiment.data}.\n"
                f"runs: {runs}, seed: {options['--seed']}\n"
            )
            assert f"\n## {name}\n" in PAGE
            has_image = f"(images/reproduction/{name}.png)" in PAGE
            assert has_image == reproduction.image(name).exists()


@pytest.mark.more
def test_a_block_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "reproduction.md"
    head = "before\n\n```\n$ dither reproduce hist-shuffle --runs 2 --seed 4\n"
    page.write_text(head + "something else\n```\n\nafter\n")
    monkeypatch.setattr(reproduction, "PAGE", page)
    monkeypatch.setattr("sys.argv", ["reproduction.py", "hist-shuffle"])
    reproduction.main()
    made = page.read_text()
    assert made.startswith(head + "hist-shuffle: ")
    assert made.endswith("\n```\n\nafter\n")
    assert "runs: 2, seed: 4" in made
    assert "something else" not in made
    reproduction.main()
    assert page.read_text() == made
    monkeypatch.setattr("sys.argv", ["reproduction.py", "hist-shufle"])
    with pytest.raises(SystemExit, match="no block of hist-shufle"):
        reproduction.main()
