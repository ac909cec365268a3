"""The forms in which files keep word vectors, one reader each."""
