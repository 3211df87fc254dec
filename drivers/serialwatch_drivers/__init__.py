"""Bytes from a device, one module a kind of device."""
