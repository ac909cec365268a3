"""Tags of the nearest training images, by learned weights or several distances."""
