"""Kernels: one loop nest for a fused group of nodes, printable, from which machine code is made."""
