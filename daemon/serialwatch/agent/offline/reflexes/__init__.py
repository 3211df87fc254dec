"""What an engineer sees at once in a fault of a known kind: each reflex tells its story."""
