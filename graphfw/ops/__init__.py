"""Every fact about every operation, and its public function: one file a family."""
