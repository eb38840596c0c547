"""The privacy that a crowd adds: reports that are shuffled among those of others.

`set_laws` has the laws that a mechanism states for its reports. From these, `amplification` bounds
the epsilon of a crowd: for reports of two symbols directly, for others by the law that all values
share (the blanket), and for both by the laws of sums in `lattice_sums`. Theorems:
docs/proofs/crowds.md.
"""
