"""Reports over HTTP, for devices that speak no Kafka: `POST /v1/reports`.

The path of a post: :mod:`~producers.gateway.clients` (is its sender within its rate?),
:mod:`~producers.gateway.bodies` (is it a batch of this metric's reports?),
:mod:`~producers.gateway.sender` (to Kafka, until Kafka has acknowledged it).
"""

from producers.gateway.gateway import Gateway

__all__ = ["Gateway"]
