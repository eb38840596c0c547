"""The HTTP server: what is known, live, for people and programs."""

from aggregator.web.application import application

__all__ = ["application"]
