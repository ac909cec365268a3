"""Models that score tags for images: the base contract, and one file a model."""
