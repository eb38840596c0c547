"""The relay: takes sealed reports, shuffles each crowd, and posts it to the service."""
