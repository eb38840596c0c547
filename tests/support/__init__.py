"""Helpers of the tests: the one place that tests of several folders import from."""
