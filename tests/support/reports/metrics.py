"""Metrics that the services' tests count."""

METRICS = """
[attributes]
country = ["DE", "FR"]
[metrics]
delay = {kind = "mean", mechanism = "randomized_response", range = [-60, 180], levels = [0.5, 1, \
2], pane = "1h", lateness = "1h", unit = "minutes", description = "Departure delay", \
by = ["country"]}
carrier = {kind = "frequency", mechanism = "rappor", categories = ["AA", "B6", "DL", "EV", "UA"], \
levels = [1, 4], pane = "1d"}
age = {kind = "mean", mechanism = "laplace", range = [0, 100], levels = [0.5, 2], pane = "10m", \
retention = "30d"}
"""
