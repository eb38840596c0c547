"""Workers, a model of Kafka and a Redis that fails, disturbed by a seeded scheduler.

Everything between them is the product's own code: the worker, the partition, the decoder, the
dead letters, the store and its Lua scripts. See docs/reliability.md.
"""
