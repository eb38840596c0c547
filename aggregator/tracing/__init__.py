"""Where spans of the service's work begin and end; without OpenTelemetry nothing is recorded."""
