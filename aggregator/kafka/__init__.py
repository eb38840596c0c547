"""Kafka clients, topics, and what their failures mean."""
