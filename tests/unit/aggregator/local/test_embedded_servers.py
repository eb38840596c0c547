"""A process that has started returns the memory that it frees."""

import subprocess
import sys

PROGRAM = """
import mmap
from pathlib import Path
from aggregator.malloc_settings import MALLOC_VARIABLES, apply_malloc_variables

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE // 10**6

apply_malloc_variables(*MALLOC_VARIABLES)
before = resident()
del (large := [bytearray(b"1") * 30_000_000 for _ in range(2)])[:]  # by default, raises the limit
blocks, kept = [], []
for _ in range(60):
    blocks.append(bytearray(b"1") * 1_500_000)
    kept.append(bytearray(b"1") * 600)
del blocks
print(resident() - before)
"""


def test_a_deployment_returns_freed_memory_between_what_it_keeps() -> None:
    """Mutant: without mallopt, glibc keeps 30 MB of 90."""
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert int(told.stdout) < 10, told
