"""Models: what their endpoints can do, what they cost, and what they never see."""
