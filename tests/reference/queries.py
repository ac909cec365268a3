"""Queries from tags as Python sets make them, for comparison with arrays and kernels."""

from __future__ import annotations

from itertools import combinations


def tag_queries(tag_sets, max_words=None):
    """Map each set of tags that an image has, as a sorted tuple, to the images that have them all."""
    found = {}
    for tags in tag_sets:
        longest = len(tags) if max_words is None else min(len(tags), max_words)
        for width in range(1, longest + 1):
            for query in combinations(sorted(tags), width):
                found.setdefault(query, [i for i, own in enumerate(tag_sets) if set(query) <= set(own)])
    return found
