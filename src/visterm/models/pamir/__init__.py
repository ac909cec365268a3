"""PAMIR: linear scorers of words that learn from queries of several."""
