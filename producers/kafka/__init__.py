"""One Kafka producer, batches on their way, and Kafka's failures in words."""
