"""The HTTP layer: access, hosts, limits, TLS, problems, and slow clients."""
