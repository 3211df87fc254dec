"""Bytes from ports into rings, numbered and bounded."""
