"""The daemon itself: what starts, runs and stops together."""
