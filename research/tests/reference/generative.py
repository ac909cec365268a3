"""Slow twins of the generative models: one image, one tag, one visterm at a time, as the papers write them."""

from __future__ import annotations

import numpy as np


def cmrm_scores(X, Y, x, alpha, beta):
    """P(t|p) for each tag, by PAMIR's equation (1) and Bayes' rule."""
    n_images, n_tags = Y.shape
    joint = np.zeros(n_tags)
    evidence = 0.0
    for j in range(n_images):
        likelihood = 1.0
        for v, count in enumerate(x):
            if X[:, v].sum() > 0:
                own = X[j, v] / X[j].sum() if X[j].sum() else 0.0
                likelihood *= ((1 - beta) * own + beta * X[:, v].sum() / X.sum()) ** count
        for t in range(n_tags):
            own = Y[j, t] / Y[j].sum()
            joint[t] += likelihood / n_images * ((1 - alpha) * own + alpha * Y[:, t].sum() / Y.sum())
        evidence += likelihood / n_images
    return joint / evidence


def mbrm_scores(X, Y, x, width, mu, regions):
    """P(t|p) for each tag, `mu` in images, `width` in squared units of the features."""
    n_images, n_tags = Y.shape
    joint = np.zeros(n_tags)
    evidence = 0.0
    for j in range(n_images):
        likelihood = 1.0
        for g in np.split(x, regions):
            likelihood *= np.mean([np.exp(-((g - r) ** 2).sum() / width) for r in np.split(X[j], regions)])
        for t in range(n_tags):
            joint[t] += likelihood * (mu * Y[j, t] + Y[:, t].sum()) / (mu + n_images)
        evidence += likelihood
    return joint / evidence


def mean_squared_distance(X, regions):
    """The mean over all pairs of regions, each with itself too."""
    rows = [r for x in X for r in np.split(x, regions)]
    return np.mean([((a - b) ** 2).sum() for a in rows for b in rows])


def cmtt_table(X, Y, rank, normalize, idf):
    """P(t|v) as (n_tags, n_features), from the singular values of the whole matrix M."""
    n_tags = Y.shape[1]
    M = np.hstack([_weighted(Y, True), _weighted(X, idf)])
    left, lengths, right = np.linalg.svd(M, full_matrices=False)
    M = (left[:, :rank] * lengths[:rank]) @ right[:rank]
    table = np.zeros((n_tags, X.shape[1]))
    for t in range(n_tags):
        for v in range(X.shape[1]):
            a, b = M[:, t], M[:, n_tags + v]
            if Y[:, t].any() and X[:, v].any():
                table[t, v] = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    if normalize == "tags":
        table = np.maximum(table, 0)
        sums = table.sum(axis=0)
        return table / np.where(sums > 0, sums, 1)
    return np.array([row / row.sum() if row.sum() > 0 else 0 * row for row in table])


def _weighted(counts, idf):
    counts = counts.astype(float).copy()
    if idf:
        for w in range(counts.shape[1]):
            counts[:, w] *= -np.log(max(1, (counts[:, w] > 0).sum()) / (len(counts) + 1))
    for row in counts:
        if row.any():
            row /= np.linalg.norm(row)
    return counts


def em_step(counts, images, words):
    """One step of EM of PLSA: new P(z|p) (n_images, n_aspects) and P(w|z) (n_words, n_aspects), each from the old."""
    expected_images, expected_words = np.zeros_like(images), np.zeros_like(words)
    for p in range(counts.shape[0]):
        for w in range(counts.shape[1]):
            posterior = images[p] * words[w]
            if counts[p, w] and posterior.sum() > 0:
                posterior = posterior / posterior.sum()
                expected_images[p] += counts[p, w] * posterior
                expected_words[w] += counts[p, w] * posterior
    sums = expected_images.sum(axis=1, keepdims=True)
    new_images = np.where(sums > 0, expected_images / np.where(sums > 0, sums, 1), images)
    sums = expected_words.sum(axis=0, keepdims=True)
    return new_images, np.where(sums > 0, expected_words / np.where(sums > 0, sums, 1), words)


def log_likelihood(counts, images, words):
    """Σ n(p, w) log P(w|p)."""
    return (counts * np.log(np.maximum(images @ words.T, 1e-300))).sum()
