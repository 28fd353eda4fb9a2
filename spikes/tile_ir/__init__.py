"""A spike: can one tile IR carry all families of kernels?"""
