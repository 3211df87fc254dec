"""The investigator: an own process that turns incidents into reports."""
