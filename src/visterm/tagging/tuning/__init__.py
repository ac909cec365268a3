"""Trying settings on held-out rows, and fitting the best."""
