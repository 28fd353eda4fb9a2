"""Native code for ops that are no loop nests: copies, scatters, scans and draws."""
