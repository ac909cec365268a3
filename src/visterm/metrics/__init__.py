"""Measures of annotation and of search, and how sure one may be of a difference."""
