"""From hits to incidents."""
