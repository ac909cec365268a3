"""Fitting models on, and annotating, features on disk that are larger than memory."""
