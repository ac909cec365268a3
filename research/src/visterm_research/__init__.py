"""The papers' comparisons run again: settings chosen on validation rows, test rows logged, resumable."""
