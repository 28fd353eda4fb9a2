"""The workloads, one family a module; each module lists its own in `WORKLOADS`."""
