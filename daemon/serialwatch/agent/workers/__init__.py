"""Skills while they run, each in a process of its own."""
