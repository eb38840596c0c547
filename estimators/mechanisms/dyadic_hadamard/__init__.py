"""The mechanism `dyadic_hadamard`, for the distribution of a bounded value.

`mechanism` has the reports and their sums, `constants` the public constants of a level. `haar`
turns sums into a distribution; `scores` has the moments of a report, `tails` the inequalities, and
`bands` the confidence bands that follow. `estimation` puts them together.
"""
