"""One Kafka producer, its batches in flight, and explanations of Kafka's errors."""
