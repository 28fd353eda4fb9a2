"""Experiments that decide something; no part of the package."""
