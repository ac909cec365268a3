"""Deep taggers: a network and word vectors, learned together."""
