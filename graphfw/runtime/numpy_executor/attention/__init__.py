"""Attention without a matrix of queries by keys: the generated kernels and their steps."""
