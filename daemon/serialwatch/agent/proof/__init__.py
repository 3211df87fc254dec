"""Whether a report claims nothing beyond what was read."""
