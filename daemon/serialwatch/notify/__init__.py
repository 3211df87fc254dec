"""Tell people outside: one module a way."""
