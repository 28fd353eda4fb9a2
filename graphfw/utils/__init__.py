"""Utilities that know nothing of graphs: processes, records, nested structures.

`forks` and `locks`: state that forks and interrupts leave whole. `collecting`: a garbage collector
that waits. `records`: frozen dataclasses that are made sooner. `hashing`: a digest without OpenSSL.
`nest`: nested structures. `packages`: packages that only some functions need. `patterns`: choices
of names. `uncopied`: objects that can't be copied.
"""
