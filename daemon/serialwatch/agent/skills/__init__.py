"""What a skill is: found in its folder, judged, chosen, and what it may answer."""
