"""Word vectors find tags without training images, and tags of other collections."""
