"""Reports over HTTP, for devices without a Kafka client: `POST /v1/reports`.

A post passes :mod:`~producers.gateway.rate_limits` (is its sender within the rate limits?),
:mod:`~producers.gateway.bodies` (is it a batch of this metric's reports?) and
:mod:`~producers.gateway.sender` (to Kafka, until Kafka acknowledges it). A relay's posts, which are
sealed, pass :mod:`~producers.gateway.crowds` instead.
"""

from producers.gateway.gateway import Gateway

__all__ = ["Gateway"]
