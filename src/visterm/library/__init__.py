"""The catalogue of a photo library: indexed, searched, judged by people and learned from again."""
