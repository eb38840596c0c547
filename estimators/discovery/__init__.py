"""Discovery of frequent strings that nobody listed.

`string_code` turns a string into bits and back, and `learning` makes such a code from public
examples; `presets` has four. `layout` says what a report means: groups, geometries, hashes. The
rest reads sums: `evidence` decodes them, `prefix_search` lists candidates, `own_points` tests them,
and `discoveries` puts these together. :mod:`estimators.bounds.sketches.hashed_points` has their
intervals.
"""
