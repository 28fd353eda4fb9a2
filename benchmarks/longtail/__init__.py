"""The long tail: workloads drawn from families with parameters, far from what was tuned."""
