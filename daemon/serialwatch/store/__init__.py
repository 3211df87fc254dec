"""What is kept: the log files and SQLite."""
