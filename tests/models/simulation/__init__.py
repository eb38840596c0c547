"""Workers against models of Kafka and Redis, interleaved and disturbed by a seeded scheduler.

Everything between the models is the product's own code: the worker, the partition, the decoder, the
dead letters, the store and its Lua scripts. See docs/reliability.md.
"""
