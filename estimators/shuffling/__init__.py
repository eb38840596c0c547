"""The privacy that a crowd adds: reports that are shuffled among those of others.

`set_laws` has what a mechanism states about its reports. `crowds` bounds the epsilon of a crowd
from it: `blankets` for any mechanism, `signs` for reports of two symbols, both by laws of sums
(`lattice_sums`). Theorems: docs/proofs/crowds.md.
"""
