"""Errors that say what to write, for the names and the argument lists of other frameworks.

Nothing here is run by a call that is right. An error on its way (an AttributeError of a module, a
TypeError of a call) is replaced by one that prints the corrected line.

`names.py` answers for names that don't exist, `calls.py` for arguments that don't fit, and
`written.py` reads the user's own line, so that the correction has the user's own expressions. The
tables are `foreign_names.py`, which the first error loads, and `foreign_arguments.py`.
"""
