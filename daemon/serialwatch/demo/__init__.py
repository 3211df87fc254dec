"""Boards without hardware: what `serialwatch demo` watches."""
