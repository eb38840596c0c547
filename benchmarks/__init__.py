"""Benchmarks: every stage against a baseline, alternately in the same process.

`python -m benchmarks` prints how much of the baseline's rate ours reaches. The ratio carries over
between machines, the rates do not.
"""
