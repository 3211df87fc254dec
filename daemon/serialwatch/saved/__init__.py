"""Saved logs without a daemon: read, timed, analysed, tried against rules."""
