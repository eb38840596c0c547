"""Singer's difference sets: hyperplanes of a projective space as translates of one set.

The points of the projective space over GF(d) with t coordinates are the nonzero elements of
GF(d^t), up to factors in GF(d): x^0, x^1, ..., x^(K-1) for a generator x, K = (d^t - 1) / (d - 1).
Multiplication by x turns the point i into i + 1 modulo K and hyperplanes into hyperplanes. So all K
hyperplanes are the translates D + i of one set D of s = (d^(t-1) - 1) / (d - 1) points, and any two
of them share exactly c = (d^(t-2) - 1) / (d - 1). Source: Singer, "A theorem in finite projective
geometry and some applications to number theory" (1938).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from estimators.estimate import Array, Bools, Counts, Integers
from estimators.exact.finite_fields import finite_field, prime_power
from estimators.exact.thresholds import output_chances

MAX_LOOPED_MEMBERS = 96
"""With at most this many members, a loop over them is faster than transforms, as measured."""
LARGEST_CACHED_LENGTH = 2**14
"""The largest transform of a set that is cached from one answer to the next; it takes 64 kB."""
NUMBERS_AT_A_TIME = 2**17
"""The most numbers that are transformed at a time."""
_DOUBLE_ROUNDING = 2.0**-53


@dataclasses.dataclass(frozen=True)
class DifferenceSet:
    """A set of s residues modulo K, of which any two translates have c residues in common.

    `order`: d, a prime power; for two coordinates any number from 1 on, because a hyperplane of a
    projective line is one point; `coordinates`: t, at least 2.

    >>> plane = DifferenceSet(2, 3)
    >>> plane.points, plane.size, plane.shared
    (7, 3, 1)
    >>> plane.members
    array([1, 2, 4])
    """

    order: int
    coordinates: int

    @functools.cached_property
    def points(self) -> int:
        """K, the number of points."""
        return geometric_sum(self.order, self.coordinates)

    @functools.cached_property
    def size(self) -> int:
        """s, the number of points of a translate."""
        return geometric_sum(self.order, self.coordinates - 1)

    @property
    def shared(self) -> int:
        """c, the number of points that any two translates share."""
        return geometric_sum(self.order, self.coordinates - 2)

    @property
    def members(self) -> Integers:
        """The set itself, ascending; int64, shape (s,). Computed once, in O(K log K)."""
        return _members(self.order, self.coordinates)

    @functools.cached_property
    def _skipped(self) -> Integers:
        """How many residues outside the set precede each member."""
        return self.members - np.arange(self.size)

    def contains(self, points: Array) -> Bools:
        """Return which integers are members modulo K."""
        return np.isin(points % self.points, self.members)

    def others_at(self, rank: Array) -> Integers:
        """Return the residues with these ranks, from 0 to K - s - 1, among the non-members."""
        return rank + np.searchsorted(self._skipped, rank, side="right")

    def translated_sums(self, counts: Counts, translates: int) -> Counts:
        """Return the sums of counts over the translates D, D + 1, ..., exactly.

        `counts`, shape (rows, K): not negative; `translates`: k, at most K. The result has shape
        (rows, k): ``result[:, i] = counts[:, (D + i) % K].sum(axis=1)``, in O(K log K) for each
        row, and memory linear in K.

        It is a correlation with the indicator of D. If D has more than a few members, it uses
        floating-point Fourier transforms of a length M without prime factors above 5. With m = log2
        M their error is less than 32 m 2^-53 |x| |y| in the l2 norms of the inputs: a pass of radix
        r adds at most sqrt(r) (r + 6) 2^-53 of the norm to a forward transform and (r + 6) 2^-53 to
        the inverse one, most for r = 2. If the bound is below 1/4, rounding is exact; counts with a
        larger norm are split into digits.

        >>> DifferenceSet(2, 3).translated_sums(np.array([[5, 1, 0, 0, 0, 0, 2]]), 7)
        array([[1, 0, 2, 5, 3, 7, 6]])
        """
        if self.size <= MAX_LOOPED_MEMBERS:
            around = np.concatenate([counts, counts[:, : translates - 1]], axis=1)
            sums = np.zeros((len(counts), translates), dtype=np.int64)
            for member in self.members.tolist():
                sums += around[:, member : member + translates]
            return sums
        from scipy import fft

        length = fft.next_fast_len(self.points + translates - 1, real=True)
        is_cached = length <= LARGEST_CACHED_LENGTH
        spectrum = _kept_spectrum(self, length) if is_cached else _spectrum(self, length)
        largest = 0.25 / (32 * math.log2(length) * _DOUBLE_ROUNDING * math.sqrt(self.size))
        base = int(largest / math.sqrt(2 * self.points))

        def correlated(part: Counts) -> Counts:
            numbers = np.zeros((len(part), length))
            numbers[:, : self.points] = part
            numbers[:, self.points : self.points + translates - 1] = part[:, : translates - 1]
            if math.sqrt(np.einsum("ij,ij->i", numbers, numbers).max()) > largest:
                high, low = np.divmod(part, base)
                return base * correlated(high) + correlated(low)
            product = fft.rfft(numbers)
            del numbers
            product *= spectrum
            return np.rint(fft.irfft(product, length)[:, :translates]).astype(np.int64)

        rows = max(1, NUMBERS_AT_A_TIME // length)
        parts = [correlated(counts[i : i + rows]) for i in range(0, len(counts), rows)]
        return np.concatenate(parts)


def _spectrum(geometry: DifferenceSet, length: int) -> NDArray[np.complex128]:
    from scipy import fft

    indicator = np.zeros(length)
    indicator[geometry.members] = 1
    spectrum: NDArray[np.complex128] = fft.rfft(indicator)
    np.conjugate(spectrum, out=spectrum)
    spectrum.flags.writeable = False
    return spectrum


_kept_spectrum = functools.lru_cache(maxsize=256)(_spectrum)


def support_chances(epsilon: Fraction, geometry: DifferenceSet) -> tuple[Fraction, Fraction]:
    """Return p and q: the chances that a report is on its value's hyperplane, and on a given other.

    `epsilon`: above 0; `geometry`: the set whose translates are the hyperplanes. A report is
    uniform on the hyperplane of its value, or uniform off it.
    """
    points, size, shared = geometry.points, geometry.size, geometry.shared
    inside, outside = output_chances(epsilon, size, points - size)
    return inside * size, inside * shared + outside * (size - shared)


def geometric_sum(base: int, terms: int) -> int:
    """Return 1 + base + ... + base^(terms - 1)."""
    return sum(base**i for i in range(terms))


@functools.lru_cache(maxsize=64)
def _members(order: int, coordinates: int) -> Integers:
    """Return the i below K for which x^i lies in one hyperplane, ascending.

    Raises ValueError if `order` is not a prime power and there are more than two coordinates.

    For d = p^m, x generates GF(p^(m t)), and g = x^K generates GF(d). The constant coefficient u of
    a polynomial is a GF(p)-linear function; if it vanishes for x^i g^l, l = 0 to m - 1, it vanishes
    on all multiples of x^i by GF(d). All u_(i + K l), i = j + b side, are products of coefficients
    of x^j and of rows of x^(b side + K l).
    """
    if coordinates == 2:
        members = np.zeros(1, dtype=np.int64)
    else:
        base_and_exponent = prime_power(order)
        if base_and_exponent is None:
            raise ValueError(f"order = {order}: expected a power of a prime")
        prime, exponent = base_and_exponent
        field = finite_field(prime, exponent * coordinates)
        points = geometric_sum(order, coordinates)
        side = math.isqrt(points - 1) + 1
        unit = np.array(field.unit)
        columns = field.orbit(unit, field.matrix(1), side).T.astype(np.float64)
        step = field.matrix(side).T
        zero = np.ones((side, side), dtype=np.bool_)
        for power in range(exponent):
            rows = field.orbit(field.matrix(points * power)[:, 0], step, side)
            # numbers below p^2 m t are exact in doubles, which are much faster
            zero &= (rows.astype(np.float64) @ columns) % prime == 0
        members = np.flatnonzero(zero.ravel()[:points])
    members.flags.writeable = False
    return members
