"""diffprivlib: one value at a time, in Python, in floating point."""

from __future__ import annotations

from typing import Any

from diffprivlib.mechanisms import Binary, Geometric

from benchmarks.peers.answering import answer, given

MOST = 2_000
SENSITIVITY = 2 * 1024
"""Of values in [-1, 1] on a grid of 1/1024."""


def main() -> None:
    population = given()
    binary = Binary(epsilon=population.epsilon, value0="0", value1="1")
    noise = Geometric(epsilon=population.epsilon, sensitivity=SENSITIVITY)
    answers = [str(bit) for bit in population.bits[:MOST]]
    numbers = population.values[:MOST].tolist()

    def randomized(mechanism: Any, values: Any) -> Any:
        return lambda: len([mechanism.randomise(value) for value in values])

    answer(
        {
            "randomize randomized_response": randomized(binary, answers),
            "randomize laplace": randomized(noise, numbers),
        }
    )


if __name__ == "__main__":
    main()
