"""Benchmarks: graphfw beside what one would use instead, in one run. `python -m benchmarks --help`."""
