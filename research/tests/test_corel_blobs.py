"""CMRM on the blobs of Corel5k that were published with it, beside the published figure."""

from __future__ import annotations

import csv

import numpy as np
import pytest
import scipy.sparse as sp

from visterm.metrics.retrieval import rank_images
from visterm_research.models.generative.cmrm import Cmrm

N_BLOBS = 499


def read_columns(path, column):
    """Return the names, the splits and one column of a TSV file."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return [row["image"] for row in rows], [row["split"] for row in rows], [row[column] for row in rows]


def matrix_of_sets(sets, n_columns):
    columns = [column for row in sets for column in row]
    starts = np.cumsum([0, *map(len, sets)])
    return sp.csr_array((np.ones(len(columns), np.float32), columns, starts), shape=(len(sets), n_columns))


@pytest.fixture(scope="module")
def blobs(shared):
    """Blobs and words of 4,500 training and 499 test images: `X`, `Y`, and which are for testing."""
    names, splits, found = read_columns(shared / "data/corel5k/blobs.tsv", "blobs")
    named, split, labels = read_columns(shared / "data/corel5k/labels.tsv", "labels")
    assert (names, splits) == (named, split)
    words = sorted({word for row in labels for word in row.split(",")})
    X = matrix_of_sets([list(map(int, row.split())) for row in found], N_BLOBS)
    Y = matrix_of_sets([[words.index(word) for word in row.split(",")] for row in labels], len(words))
    return X, Y, np.array(splits) == "test"


def word_map(model, X, Y):
    """MAP of one-word queries, of the words that two or more of the images have."""
    words = np.flatnonzero(np.bincount(Y.indices, minlength=Y.shape[1]) >= 2)
    scores = np.ascontiguousarray(model.decision_function(X)[:, words])
    return len(words), rank_images(scores, Y[:, words]).average_precision().mean()


@pytest.mark.shared
def test_cmrm_on_the_published_blobs_searches_as_well_as_published(blobs):
    X, Y, test = blobs
    train = np.flatnonzero(~test)
    rows = np.random.default_rng(0).permutation(train)
    valid, rest = np.sort(rows[:500]), np.sort(rows[500:])
    tried = {}
    for beta in (0.5, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99):
        model = Cmrm(alpha=0.1, beta=beta).fit(X[rest], Y[rest])
        tried[beta] = word_map(model, X[valid], Y[valid])[1]
    beta = max(tried, key=tried.get)
    n_words, found = word_map(Cmrm(alpha=0.1, beta=beta).fit(X[train], Y[train]), X[test], Y[test])
    assert n_words == 179
    assert found == pytest.approx(0.165, abs=0.01)  # 0.1697 for CMRM in Lavrenko, Manmatha, Jeon 2003
