"""The error for reports that were not delivered."""

from __future__ import annotations

KEPT_REPORTS = "they are kept, and flush() sends them again (one that arrives twice counts once)"
LOST_REPORTS = (
    "the reporter is closed and they are lost; call flush() before closing, so that you can retry"
)


class DeliveryError(RuntimeError):
    """Raised if the `receiver`, which is Kafka or a gateway, has not acknowledged reports.

    Attributes
    ----------
    reports, batches : int
        The numbers of reports and batches that are not acknowledged.
    first_error : str
        The first message of Kafka's client, or the gateway's last answer.
    kept : bool
        Whether ``flush()`` sends them again; if not, the reporter is closed, and they are lost.
    """

    def __init__(
        self,
        *,
        reports: int,
        batches: int,
        first_error: str,
        receiver: str,
        check: str,
        are_kept: bool,
    ) -> None:
        self.reports, self.batches, self.first_error = reports, batches, first_error
        self.kept = are_kept
        super().__init__(
            f"{reports} reports in {batches} batches were not acknowledged by {receiver}: "
            f"{first_error}; {check}; {KEPT_REPORTS if are_kept else LOST_REPORTS}"
        )
