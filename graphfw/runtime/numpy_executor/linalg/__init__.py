"""Small matrices as native code: factored, inverted and solved with, one or many at a time.

`matrices.py` has matrices in a thread's scratch memory, `algorithms.py` what is done to them, and
`steps.py` the steps of nodes.
"""
