"""PAMIR: one scorer per word, which learns from queries of several words."""
