"""Kernels for ops that are no loop nests: joins, putting values where indices point, scans."""
