"""Sessions, plans and executors: what compiles and runs graphs."""
