"""Discovery of frequent strings that nobody listed.

`string_code` turns a string into bits and back, by one of four codes or by a code that `learning`
makes from public examples. `layout` says what a report means: groups, geometries, hashes.
From the sums of reports, `prefix_search` lists candidates, `own_points` tests them, and
`discoveries` combines both. :mod:`estimators.bounds.sketches` has the bounds of their frequencies.
"""
