"""The drawn photo library, and the demo that learns it."""
