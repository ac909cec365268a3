"""Tags that no training image shows, and tags of other collections, found by word vectors."""
