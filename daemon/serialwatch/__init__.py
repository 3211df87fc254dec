"""A serial-port bench daemon: bytes in, cited reports out."""
