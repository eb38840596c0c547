"""Metrics whose devices send true values, to a collector that only shows releases."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from estimators.central.collection import COLLECTIONS, TrueValues
from estimators.central.release_weights import RELEASE_WEIGHTINGS
from estimators.errors import explain_missing_scipy
from estimators.estimate import Counts, Estimate
from estimators.exact.randomness import Bits, SystemBits
from estimators.metrics.kinds import Way
from estimators.metrics.metric import ReportedMetric


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrustedMetric(ReportedMetric):
    """A metric whose devices send true values: **the collector sees them**.

    Only releases are private. See :class:`estimators.metrics.metric.Metric` for the parameters.
    """

    way: ClassVar[Way] = Way.TRUSTED
    trust: ClassVar[str] = "central"
    sends_true_values: ClassVar[bool] = True
    answered: ClassVar[str] = "is collected in trust: only releases may be shown, use `release`"

    def check(self) -> None:
        """Raise DefinitionError for what a trusted collection does not allow.

        That is any kind but a mean or a frequency, any mechanism, and an open vocabulary.
        """
        super().check()
        if self.kind not in COLLECTIONS:
            self.refuse("kind", f"{' or '.join(COLLECTIONS)} where trust is central")
        if self.mechanism not in ("", TrueValues.name):
            self.refuse("mechanism", "none where trust is central: devices send true values")
        if self.domain.parameters.get("categories", 0) is None:
            self.refuse("categories", "names, or their number, where trust is central")

    @property
    def mechanism_class(self) -> type[TrueValues]:
        """The class that replaces the mechanism, but randomizes nothing."""
        return COLLECTIONS[self.kind]

    @property
    def policies(self) -> tuple[str, ...]:
        """The names of the possible weights of a release, the default first."""
        return tuple(RELEASE_WEIGHTINGS[self.kind])

    @property
    def meaning(self) -> dict[str, Any]:
        """The key `trust`, because it determines that reports are true values."""
        return {"trust": self.trust}

    @explain_missing_scipy("a release")
    def release(
        self,
        statistic: Counts,
        bits: Bits | None = None,
        weights: str | None = None,
        beta: float = 0.05,
        target: str = "population",
    ) -> Estimate:
        """Return a private release of the sums of a trusted collection, with newly drawn noise.

        **Each call draws new noise and costs every report the loss in `privacy`.** Release a
        statistic once, and store the result.

        Parameters
        ----------
        statistic : ndarray of int64
            The summed true values, from :meth:`accumulate`.
        bits : Bits, optional
            The source of randomness; the operating system's by default.
        weights : str, optional
            One of :attr:`policies`; the first of them by default.
        beta : float
            Failure probability of the bounds; simultaneous over categories.
        target : {"population", "sample"}
            See :class:`estimators.question.Question`.

        Returns
        -------
        Estimate
            In the metric's own unit, unbiased and not clipped; without reports, NaN with the ends
            of the range as bounds. `privacy`: the loss at each level; `saturation`: the epsilon
            above which a level does not improve the release. With ``"adpm"`` and very few users,
            the release is the middle of the range, which costs no privacy.

        Raises
        ------
        ValueError
            If `weights` is not one of :attr:`policies`.

        Examples
        --------
        >>> from estimators import SeededBits, define
        >>> metric = define(name="late", kind="mean", trust="central", range=(0, 1),
        ...                 levels=[0.1, 1, 8])
        >>> level = metric.level_of([0.1] * 2000 + [1.0] * 1000 + [8.0] * 1000)
        >>> statistic = metric.zero()
        >>> metric.accumulate(statistic, level, metric.randomize([0.0, 1.0] * 2000, level))
        >>> release = metric.release(statistic, SeededBits(1), weights="adpm")
        >>> bool(release.lower < 0.5 < release.upper), release.saturation
        (True, 0.14)
        >>> release.privacy.round(4)
        array([0.1 , 0.14, 0.14])
        """
        low, high = self.domain.ends
        source = SystemBits() if bits is None else bits
        policy = self.policies[0] if weights is None else weights
        released = self._collection.release(self.table(statistic), source, policy, beta, target)
        return dataclasses.replace(released.rescaled(low, high - low), labels=self.labels)

    def with_beta(self, release: Estimate, beta: float) -> Estimate:
        """Return a release with bounds at another failure probability; it costs no privacy.

        `release`: a release of this metric, from which nothing is drawn again; `beta`: the failure
        probability of the bounds, simultaneous over categories.
        """
        low, high = self.domain.ends
        width = high - low
        in_unit = release.rescaled(-low / width, 1 / width)
        return self._collection.with_beta(in_unit, beta).rescaled(low, width)

    @property
    def _collection(self) -> TrueValues:
        collection = self.randomizer
        assert isinstance(collection, TrueValues)  # noqa: S101
        return collection
