"""Benchmarks against other libraries: each runs in an environment of its own, as a process.

`libraries`, `streams` and `engines` are the stages; `environments`, `process` and `jvm` start what
they measure. The other files are what runs in there: they import nothing of Dither.
"""
