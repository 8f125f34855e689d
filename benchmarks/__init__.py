"""Measurements that are no tests: each says what it measures, and against what."""
