"""The commands for graphs as text: `python -m graphfw opt` and `compile`."""
