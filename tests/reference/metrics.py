"""Metrics the slow way: each list is sorted in full, then read from the top."""

from __future__ import annotations

import numpy as np


def best_first(scores, excluded):
    """Ids of one list by falling score, the smaller id first among equals, without the excluded."""
    return [int(i) for i in sorted(range(len(scores)), key=lambda i: (-scores[i], i)) if not excluded[i]]


def ranks_in_rows(scores, relevant):
    """Rank and mid-rank of each relevant entry, row by row in order of columns."""
    ranks, mid_ranks = [], []
    for row, wanted in zip(scores, relevant, strict=True):
        order = best_first(row, np.zeros(row.size, bool))
        for column in np.flatnonzero(wanted):
            ranks.append(order.index(column) + 1)
            level = [order.index(c) + 1 for c in range(row.size) if row[c] == row[column]]
            mid_ranks.append(np.mean(level))
    return np.array(ranks, np.int64), np.array(mid_ranks, np.float64)


def irrelevant_above(scores, relevant):
    """Irrelevant rows between each relevant entry of a column and the one before it, column by column, best first."""
    counts = []
    for scores_of_tag, wanted in zip(scores.T, relevant.T, strict=True):
        gap = 0
        for row in best_first(scores_of_tag, np.isneginf(scores_of_tag)):
            if wanted[row]:
                counts.append(gap)
            gap = 0 if wanted[row] else gap + 1
    return np.array(counts, np.int64)


def per_list(scores, relevant, excluded, k):
    """Values of one list as a dict by measure, or None where nothing is relevant."""
    relevant = relevant & ~excluded
    n_relevant = int(relevant.sum())
    if n_relevant == 0:
        return None
    right = [bool(relevant[i]) for i in best_first(scores, excluded)]
    places = [place for place, hit in enumerate(right, start=1) if hit]
    hits = sum(right[:k])
    precision, recall = hits / k, hits / n_relevant
    pairs = [
        1.0 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0.0
        for i in np.flatnonzero(relevant)
        for j in np.flatnonzero(~relevant & ~excluded)
    ]
    return {
        "p": precision,
        "r": recall,
        "f1": 2 * precision * recall / (precision + recall) if hits else 0.0,
        "map": float(np.mean([sum(right[:place]) / place for place in places])),
        "mrr": 1 / places[0],
        "ndcg": sum(1 / np.log2(1 + p) for p in places if p <= k)
        / sum(1 / np.log2(1 + p) for p in range(1, min(k, n_relevant) + 1)),
        "auc": float(np.mean(pairs)) if pairs else float("nan"),
    }


def evaluate(scores, relevant, excluded, k, siblings, tree):
    """Every metric by its name without the k; NaN where there is nothing to average."""
    images = [per_list(*lists, k) for lists in zip(scores, relevant, excluded, strict=True)]
    words = [per_list(*lists, k) for lists in zip(scores.T, relevant.T, excluded.T, strict=True)]
    result = {name: _mean([v[name] for v in images if v]) for name in ("p", "r", "f1", "map", "mrr", "ndcg", "auc")}
    result |= {f"word_{name}": _mean([v[name] for v in words if v]) for name in ("map", "p")}
    result["psib"] = _mean(
        [psib(*lists, k, siblings) for lists in zip(scores, relevant & ~excluded, excluded, strict=True)]
    )
    trees = [in_tree(*lists, k, tree) for lists in zip(scores, relevant & ~excluded, excluded, strict=True)]
    result |= {name: _mean([v[name] for v in trees if v]) for name in ("hp", "hr", "hf1")}
    return result | _tag_by_tag(scores, relevant & ~excluded, excluded, k)


def psib(scores, relevant, excluded, k, siblings):
    """Share of the first k that are relevant or a sibling of something relevant; NaN where nothing is."""
    right = [int(y) for y in np.flatnonzero(relevant)]
    first = best_first(scores, excluded)[:k]
    return sum(any(j == y or siblings[j, y] for y in right) for j in first) / k if right else float("nan")


def in_tree(scores, relevant, excluded, k, tree):
    """Precision, recall and F1 of the nodes of the first k and of what is relevant; None where nothing is."""
    first, right = (
        {node for tag in tags for node in np.flatnonzero(tree[tag])}
        for tags in (best_first(scores, excluded)[:k], np.flatnonzero(relevant))
    )
    if not right:
        return None
    precision, recall = len(first & right) / len(first), len(first & right) / len(right)
    f1 = 2 * precision * recall / (precision + recall) if precision else 0.0
    return {"hp": precision, "hr": recall, "hf1": f1}


def _tag_by_tag(scores, relevant, excluded, k):
    given = np.zeros(scores.shape, bool)
    for image in range(scores.shape[0]):
        given[image, best_first(scores[image], excluded[image])[:k]] = True
    known = [tag for tag in range(scores.shape[1]) if relevant[:, tag].any()]
    right = [(given & relevant)[:, tag].sum() for tag in known]
    p = _mean([r / given[:, tag].sum() if r else 0.0 for r, tag in zip(right, known, strict=True)])
    r = _mean([r / relevant[:, tag].sum() for r, tag in zip(right, known, strict=True)])
    f1 = 2 * p * r / (p + r) if p + r != 0 else 0.0
    return {"tag_p": p, "tag_r": r, "tag_f1": f1, "n_plus": sum(r > 0 for r in right) if known else float("nan")}


def _mean(values):
    values = [value for value in values if not np.isnan(value)]
    return float(np.mean(values)) if values else float("nan")
