"""Matrices as native code: factored, inverted and solved with, one or many at a time.

`elements.py` and `matrices.py` have matrices in a thread's scratch memory, `algorithms.py` what is
done to them. `steps.py`, `lu.py` and `qr.py` make the steps of nodes.
"""
