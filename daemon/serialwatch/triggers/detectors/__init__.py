"""Detectors: what no single line tells."""
