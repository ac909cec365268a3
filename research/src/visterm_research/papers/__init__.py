"""What the papers report, typed in once."""
