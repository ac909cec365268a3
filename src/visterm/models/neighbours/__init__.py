"""Tags of the nearest training images."""
