"""What is wrong with this PC's set-up. Reads files; opens no port and changes nothing."""
