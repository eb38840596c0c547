"""`python -m benchmarks`: what `dither bench` runs."""

from __future__ import annotations

from benchmarks.command import bench

if __name__ == "__main__":
    bench()
