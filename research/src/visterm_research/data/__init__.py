"""Data sets that only the papers' comparisons read or draw."""
