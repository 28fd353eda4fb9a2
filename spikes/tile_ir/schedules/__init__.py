"""One schedule for each family of kernels."""
