"""Benchmarks against other libraries: each runs in an environment of its own, as a process.

`libraries`, `users` and `engines` are the stages; `environments`, `process` and `jvm` start what
they measure. The other files run in those environments, and import nothing of Dither.
"""
