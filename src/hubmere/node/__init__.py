"""The composition root: builds a node from its settings, starts it and stops it."""
