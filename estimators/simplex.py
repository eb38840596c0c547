"""Post-processing of frequencies: the nearest point of the probability simplex."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from estimators.estimate import Floats


def project(values: ArrayLike) -> Floats:
    """Return the nearest frequencies, in Euclidean distance, that are at least 0 and sum to 1.

    Unlike the unbiased estimates, which can be slightly negative, the projection is biased: the
    frequencies of rare categories are too large. But it is nearer to every distribution, including
    the true one. Bounds hold for the values before the projection. Dither never projects unasked.

    `values`, shape (k,) or (..., k): one histogram a row. The result, max(x - t, 0) with the t that
    makes it sum to one, has the same shape. Sources: Held, Wolfe and Crowder (1974); Duchi,
    Shalev-Shwartz, Singer and Chandra (2008), Figure 1. Raises ValueError if there is no category,
    or a value is not finite.

    >>> project([0.75, 0.5, -0.05])
    array([0.625, 0.375, 0.   ])
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"values of shape {x.shape}: expected one or more categories")
    if not np.isfinite(x).all():
        raise ValueError("values: expected finite numbers; an estimate without reports has none")
    descending = -np.sort(-x, axis=-1)
    excess = np.cumsum(descending, axis=-1) - 1
    rank = np.arange(1, x.shape[-1] + 1)
    support_size = np.count_nonzero(descending * rank > excess, axis=-1, keepdims=True)
    shift = np.take_along_axis(excess, support_size - 1, axis=-1) / support_size
    return np.maximum(x - shift, 0)
