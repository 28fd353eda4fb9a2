"""Errors that say what to write, for the names and the argument lists of other frameworks.

Nothing here is run by a call that is right. An error on its way (an AttributeError of a module or
an object, a TypeError of a call) is replaced by one that prints the corrected line.

`names.py` answers for names that don't exist, `calls.py` for arguments that don't fit, and
`written.py` reads the user's own line, so that the correction has the user's own expressions.
`lookup.py` finds what graphfw calls a thing, or how it writes it (`expressions.py`), in tables that
the first error loads: `tables.py` reads `foreign_names.py`, `foreign_calls.py`, `foreign_texts.py`,
`foreign_module_texts.py`, `foreign_training.py` and `foreign_methods.py`. The arguments' names are
in `foreign_arguments.py` and `foreign_left_out.py`.
"""
