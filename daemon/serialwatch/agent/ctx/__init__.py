"""What a running skill may ask: the log, the past, knowledge and memory."""
