"""Benchmarks: graphfw beside what one would use instead. `python -m benchmarks --help`."""
