"""
Recommending by row numbers alone
=================================

Sometimes there are no photos at all: only who watched what, or which order had which parts. Pairs of a user and an item
are enough, and the models that rank tags become recommenders.
"""

import matplotlib.pyplot as plt
import numpy as np

import visterm

# %%
# We draw 400 people and 60 films of six kinds. Everyone likes two kinds, mostly, and has seen twelve films.

rng = np.random.default_rng(0)
kinds = np.repeat(["crime", "comedy", "space", "animals", "history", "music"], 10)
films = np.array([f"{kind} {i % 10}" for i, kind in enumerate(kinds)])
pairs = {"user": [], "item": [], "day": []}
for number in range(400):
    liked = np.isin(kinds, rng.choice(np.unique(kinds), 2, replace=False))
    chance = np.where(liked, 1.0, 0.08) / (1 + np.arange(60) % 10)  # in each kind the first films are the famous ones
    pairs["user"] += [f"person {number}"] * 12
    pairs["item"] += rng.choice(films, 12, replace=False, p=chance / chance.sum()).tolist()
    pairs["day"] += rng.integers(0, 365, 12).tolist()

# %%
# Which model finds the films that people watched last? The latest fifth of the pairs is held out, and all films are
# ranked. ``prior`` recommends what everyone watches.

table = visterm.evaluate_pairs(
    pairs, ["auto", "ease", "wsabie", "knn", "prior"], split="temporal", time="day", n_jobs=1,
    metrics=["recall@5", "ndcg@5", "mrr", "coverage@5"],
)  # fmt: skip
print(table.to_pandas().pivot(index="model", columns="metric", values="value").round(3))

# %%
# The best model learns from all pairs, and recommends films that a person hasn't seen.

recommender = visterm.fit_pairs(pairs, n_jobs=1)
people = [f"person {number}" for number in range(30)]
result = recommender.recommend(people, k=5)
print(result.to_pandas().head())
print(recommender.similar_items(["space 0"], k=3).items)

# %%
# Each row is a person; grey films are seen, blue ones recommended.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.3), layout="constrained", width_ratios=[2, 3])
bars = [row for row in table.rows() if row["metric"] == "recall@5"]
errors = [[row["value"] - row["low"] for row in bars], [row["high"] - row["value"] for row in bars]]
left.barh([row["model"] for row in bars], [row["value"] for row in bars], xerr=errors, color="#0072B2")
left.set(xlabel="share of the held-out films among five")
left.invert_yaxis()
left.spines[["top", "right"]].set_visible(False)

grid = np.ones((30, 60, 3))
for row, (person, items) in enumerate(zip(people, result.items, strict=True)):
    seen = [item for user, item in zip(pairs["user"], pairs["item"], strict=True) if user == person]
    grid[row, np.isin(films, seen)] = 0.75
    grid[row, np.isin(films, items)] = (0.0, 0.45, 0.70)
right.imshow(grid, aspect="auto", interpolation="none")
right.set_xticks(np.arange(4.5, 60, 10), dict.fromkeys(kinds))
right.set(ylabel="people", yticks=[], title="seen (grey) and recommended (blue)")
for edge in range(10, 60, 10):
    right.axvline(edge - 0.5, color="white", linewidth=2)
plt.show()

# %%
# A new person needs no fit: the films they have seen are folded in.

newcomer = recommender.fold_in({"user": ["newcomer"] * 2, "item": ["space 0", "music 1"]})
print(newcomer.recommend(k=5).items)

# %%
# **What you learn.** Nothing in visterm needs pixels. :doc:`Pairs of users and items </docs/recommenders>` are learned,
# measured and recommended by the same models.
