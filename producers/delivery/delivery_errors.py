"""The error for reports that were not delivered."""

from __future__ import annotations

import dataclasses

KEPT_REPORTS = "they are kept, and flush() sends them again (one that arrives twice counts once)"
LOST_REPORTS = (
    "the reporter is closed and they are lost; call flush() before closing, so that you can retry"
)


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class DeliveryError(RuntimeError):
    """Raised if the `receiver`, which is Kafka or a gateway, has not acknowledged reports.

    Attributes
    ----------
    reports, batches : int
        The numbers of reports and batches that are not acknowledged.
    first_error : str
        The first message of Kafka's client, or the gateway's last answer.
    receiver, check : str
        Which server has not acknowledged them, and what to check.
    kept : bool
        Whether ``flush()`` sends them again; if not, the reporter is closed, and they are lost.
    """

    reports: int
    batches: int
    first_error: str
    receiver: str
    check: str
    kept: bool

    def __post_init__(self) -> None:
        super().__init__(
            f"{self.reports} reports in {self.batches} batches were not acknowledged by "
            f"{self.receiver}: {self.first_error}; {self.check}; "
            f"{KEPT_REPORTS if self.kept else LOST_REPORTS}"
        )
