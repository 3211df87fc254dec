"""Lines to hits: rules, the matcher, detectors, boots."""
