"""Benchmarks against other libraries: each runs in an environment of its own, as a process.

`libraries` and `streams` are the stages; `environments` and `process` start what they measure. The
other files are what runs in there: they import nothing of Dither.
"""
