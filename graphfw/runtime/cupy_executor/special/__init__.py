"""Kernels for ops that are no loop nests: copies, scatters and scans."""
