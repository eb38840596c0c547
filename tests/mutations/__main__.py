"""`make mutations`: 60 mutations of product code, and which of them the tests find."""

import argparse
import itertools
import json
import sys
import tempfile
import threading
from pathlib import Path
from queue import Empty, SimpleQueue

from tests.mutations.drawn import PRODUCT, draw
from tests.mutations.import_graph import ImportGraph
from tests.mutations.mutation import Mutation
from tests.mutations.runs import ROOT, Copy, Outcome, tests_by_distance
from tests.mutations.written import EQUIVALENT, written


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--draws", type=int, default=40, help="how many are drawn (default: 40)")
    parser.add_argument("--seed", type=int, default=0, help="of the draws (default: 0)")
    parser.add_argument("--within", nargs="+", default=PRODUCT, help="draw from these files alone")
    parser.add_argument("--written", default="", help="of the written ones, those with this text")
    parser.add_argument("--tests", nargs="+", help="run these tests alone, of every tier")
    parser.add_argument("--lanes", type=int, default=2, help="how many at a time (default: 2)")
    parser.add_argument("--list", action="store_true", help="list the mutations, and run nothing")
    arguments = parser.parse_args()
    drawn = draw(ROOT, arguments.seed, arguments.within)
    counted = (one for one in drawn if one.key not in EQUIVALENT)
    mutations = list(itertools.islice(counted, arguments.draws))
    mutations += [one for one in written(ROOT) if arguments.written in f"{one.path} {one.what}"]
    if arguments.list:
        print(*mutations, sep="\n")
        return 0
    outcomes = run(mutations, arguments.lanes, arguments.tests)
    found = [outcome for outcome in outcomes if outcome.found_by]
    quick = sum(outcome.tier == "test" for outcome in found)
    print(f"{len(found)} of {len(outcomes)} found, {quick} of them by `make test`")
    return int(len(found) < len(mutations))


def run(mutations: list[Mutation], lanes: int, tests: list[str] | None) -> list[Outcome]:
    """Try mutations, several at a time, telling how it goes."""
    outcomes: list[Outcome] = []
    seconds_file = ROOT / ".pytest_cache" / "v" / "dither" / "seconds"
    seconds = json.loads(seconds_file.read_text()) if seconds_file.exists() else {}
    with tempfile.TemporaryDirectory(prefix="dither-mutations-") as folder:
        copies = [Copy(Path(folder) / str(lane)) for lane in range(lanes)]
        graph = ImportGraph(ROOT)
        waiting: SimpleQueue[tuple[Mutation, list[str]]] = SimpleQueue()
        for mutation in mutations:
            waiting.put((mutation, tests or tests_by_distance(mutation, graph, seconds)))

        def work(copy: Copy) -> None:
            while True:
                try:
                    mutation, files = waiting.get_nowait()
                except Empty:
                    return
                outcome = copy.try_mutation(mutation, files)
                outcomes.append(outcome)
                found_by = f"found by {outcome.found_by}" if outcome.found_by else "NOT FOUND"
                print(
                    f"[{len(outcomes)}/{len(mutations)}] {outcome.seconds:.0f} s, "
                    f"{len(files)} files import {mutation}: {found_by}",
                    flush=True,
                )

        threads = [threading.Thread(target=work, args=(copy,)) for copy in copies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
