"""PAMIR on pairs of tags."""
