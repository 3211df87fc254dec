"""HTTP and WebSocket on a Unix socket."""
