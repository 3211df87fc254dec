"""A model's run: its state, its prompts, what it does, and how it is played again."""
