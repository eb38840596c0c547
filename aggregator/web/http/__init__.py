"""HTTP itself: access, hosts, limits, TLS, problems, and slow clients."""
