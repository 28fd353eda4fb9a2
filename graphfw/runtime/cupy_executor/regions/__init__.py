"""Loops and branches: their bodies are compiled like programs, and Python makes the iterations."""
