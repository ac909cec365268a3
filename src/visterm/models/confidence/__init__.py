"""From scores to the chance of being right."""
