"""Questions of people: understood, answered by rules, then by a model."""
