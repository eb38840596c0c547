"""Benchmarks against other libraries and engines, each as a process.

`libraries`, `users` and `engines` are the stages; `process` and `jvm` start what they measure. The
other files run in environments of their own, and import nothing of Dither.
"""
