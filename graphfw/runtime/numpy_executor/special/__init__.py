"""Native code for ops that are no loop nests: what is joined, scattered, scanned and drawn."""
