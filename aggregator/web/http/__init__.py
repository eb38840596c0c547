"""HTTP itself: access, hosts, limits, TLS, problems, and clients that are slow."""
