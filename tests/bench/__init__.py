"""Benchmarks of teamd and comparable programs, in interleaved runs; no test depends on a time."""
