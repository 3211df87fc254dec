"""Lines that a board never printed in a good boot."""
