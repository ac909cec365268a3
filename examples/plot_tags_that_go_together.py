"""
Tags that go together: Delicious
================================

The users of Delicious tagged 16,105 web pages with 983 tags. Which tag does a page still lack? To a recommender, pages
are users and tags are items. Without the data of Delicious, the pairs are drawn.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp

import visterm
from visterm.data import read_mulan

# %%
# The tags of the pages as a sparse matrix. The drawn ones have 12 topics, and a few tags that fit everything.

folder = next((p / "shared/data/delicious" for p in Path.cwd().parents if (p / "shared/data/delicious").is_dir()), None)
if folder is None:
    rng = np.random.default_rng(0)
    topic_of_page, topic_of_tag = rng.integers(0, 12, 1500), np.arange(120) % 12
    chances = np.where(topic_of_page[:, None] == topic_of_tag, 0.5, 0.02) / np.sqrt(1 + np.arange(120) // 12)
    pages, names = sp.csr_array(rng.random((1500, 120)) < chances, dtype=np.float32), [f"tag {n}" for n in range(120)]
else:
    data = read_mulan(folder / "delicious-train.arff", folder / "delicious.xml")
    pages, names = sp.csr_array(data.Y[:4000], dtype=np.float32), [name.removeprefix("TAG_") for name in data.tags]
print(pages.shape, "pages and tags;", pages.nnz, "pairs")

# %%
# Which model finds a tag that was hidden from each page, among all that it lacks?

models = ["ease", "knn", "prior"]
table = visterm.evaluate_pairs(pages, models, items=names, metrics=["recall@10", "mrr"], n_jobs=1).to_pandas()
print(table[["model", "metric", "value", "low", "high", "fit_seconds"]].round(3))

# %%
# Neighbours of frequent tags, by the weights that ``ease`` learned.

recommender = visterm.fit_pairs(pages, items=names, model="ease", n_jobs=1)
frequent = recommender.items_[np.argsort(-np.asarray(pages.sum(axis=0)))[:40]]
for tag, near in list(zip(*recommender.similar_items(frequent[::8], k=4)[:2], strict=True)):
    print(f"{tag}: {', '.join(near)}")

# %%
# How similar are the forty most frequent tags?

units = recommender.run_.model.tag_rows_[np.isin(recommender.items_, frequent)]
units /= np.linalg.norm(units, axis=1, keepdims=True)
shown = recommender.items_[np.isin(recommender.items_, frequent)]
figure, axis = plt.subplots(figsize=(7.5, 7), layout="constrained")
image = axis.imshow(units @ units.T, cmap="RdBu_r", vmin=-0.5, vmax=0.5)
axis.set_xticks(range(len(shown)), shown, rotation=90, fontsize=7)
axis.set_yticks(range(len(shown)), shown, fontsize=7)
figure.colorbar(image, label="cosine", shrink=0.7)
plt.show()

# %%
# **What you learn.** A tag that is missing is predicted from the tags that are there, in closed form: see
# :doc:`/docs/recommenders`.
