"""Comparisons of two arms: by how much two slices, windows or metrics differ.

`comparison` has the function and its result, `requirements` says what can be compared, and `arms`
turns statistics into sums of reports with a law. `joint` chooses the test of their joint law, and
finds p-values: `fixed`, with the bounds of `cells`, for a fixed number of reports; `blocks` for the
Hadamard mechanisms; `mixtures`, of two `streams`, for all times at once; `vectors` for directions.
Arms that may depend on each other have separate limits. Theorems 1, 7 and 9 of
docs/proofs/comparisons.md are the tests, the p-values and the bounds at all times.
"""
