"""What a device printed, as text: harmless, in shapes, in templates."""
