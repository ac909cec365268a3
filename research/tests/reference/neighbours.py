"""Slow twins of the neighbour models: distances, transfers, votes and likelihoods one image and one tag at a time."""

from __future__ import annotations

import math

import numpy as np


def distance(name, x, y):
    """Compare two rows by the definition."""
    x, y = x.astype(float), y.astype(float)
    if name == "l1":
        return np.abs(x - y).sum()
    if name == "l2":
        return math.sqrt(np.square(x - y).sum())
    if name == "chi2":
        sizes = np.abs(x) + np.abs(y)
        return sum((a - b) ** 2 / s for a, b, s in zip(x, y, sizes, strict=True) if s > 0)
    lengths = np.linalg.norm(x) * np.linalg.norm(y)
    return 1 - x @ y / lengths if lengths else 1.0


def transferred_order(distances, given, n_neighbors):
    """Rank the tags of one image as Makadia, Pavlovic and Kumar transfer them; tags of no neighbour are left out."""
    order = np.argsort(distances, kind="stable")[:n_neighbors]
    frequency = given.sum(axis=0)
    first = np.flatnonzero(given[order[0]])
    ranked = sorted(first, key=lambda tag: (-frequency[tag], tag))
    together = given.T @ given
    merits = {}
    for tag in np.flatnonzero(given[order[1:]].sum(axis=0)):
        if tag not in first:
            local = given[order[1:], tag].sum()
            merits[tag] = (local * sum(together[one, tag] for one in first), local)
    return ranked + sorted(merits, key=lambda tag: (-merits[tag][0], -merits[tag][1], tag))


def two_pass_shares(distances, given, own, n_neighbors, bandwidth):
    """Return each tag's share of the votes of the nearest images of every tag, for one image."""
    found = set()
    for tag in range(given.shape[1]):
        members = [j for j in np.flatnonzero(given[:, tag]) if j != own]
        found |= set(sorted(members, key=lambda j: (distances[j], j))[:n_neighbors])
    weights = {j: math.exp(-bandwidth * distances[j]) for j in found}
    total = sum(weights.values())
    return np.array([sum(weights[j] for j in found if given[j, tag]) / total for tag in range(given.shape[1])])


def vote_loss(ids, weights, given, own, costs, room, scale, offset, squash):
    """Return the loss of one image: of the tags that it has or a neighbour votes for."""
    loss = 0.0
    for tag in range(given.shape[1]):
        voters = [k for k, j in enumerate(ids) if j >= 0 and given[j, tag]]
        if not own[tag] and not voters:
            continue
        votes = sum(weights[k] for k in voters)
        p = room + (1 - 2 * room) * votes
        if squash:
            p = 1 / (1 + math.exp(-scale[tag] * votes - offset[tag]))
        loss -= costs[0] * math.log(p) if own[tag] else costs[1] * math.log(1 - p)
    return loss


def metric_loss(x, rows, right, wrong, push, names, slices, scales, v, w):
    """Return the large-margin loss of one image and its neighbours, under weights of blocks and of features."""
    x, rows = x.astype(float), rows.astype(float)

    def apart(y, b):
        block, name = slices[b], names[b]
        own, theirs, weights = x[block], y[block], w[block]
        if name == "cosine":
            return distance(name, own, theirs)
        gaps = abs(own - theirs)
        if name == "l1":
            return weights @ gaps
        if name == "l2":
            return math.sqrt(weights @ gaps**2)
        return weights @ (gaps**2 / (abs(own) + abs(theirs)))

    D = [sum(v[b] * apart(y, b) / scales[b] for b in range(len(names))) for y in rows]
    losses = []
    for j in np.flatnonzero(right):
        behind = sum(wrong[k] * max(1 + D[j] - D[k], 0) for k in np.flatnonzero(~right))
        losses.append(D[j] + push * behind)
    return np.mean(losses)
