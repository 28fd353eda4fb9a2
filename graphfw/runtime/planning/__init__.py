"""Planning that executors share: the order of steps, lifetimes, and where arrays are."""
