"""
Recommending by row numbers alone
=================================

Sometimes there are no photos at all: only who watched what, or which order had which parts. The encoder ``ids`` knows
each item by a name or number, and the models that rank tags become recommenders.
"""

import matplotlib.pyplot as plt
import numpy as np

import visterm

# %%
# We draw 400 people and 60 films of six kinds. Everyone likes two kinds, mostly, and has seen about ten films. Then we
# hide two films of each person.

rng = np.random.default_rng(0)
kinds = np.repeat(["crime", "comedy", "space", "animals", "history", "music"], 10)
films = [f"{kind} {i % 10}" for i, kind in enumerate(kinds)]
seen, hidden = {}, {}
for number in range(400):
    liked = np.isin(kinds, rng.choice(np.unique(kinds), 2, replace=False))
    chance = np.where(liked, 1.0, 0.08) / (1 + np.arange(60) % 10)  # in each kind the first films are the famous ones
    watched = rng.choice(films, 12, replace=False, p=chance / chance.sum())
    seen[f"person {number}"], hidden[f"person {number}"] = watched[2:].tolist(), watched[:2].tolist()

# %%
# A list of dicts is enough: a name, and what goes with it. ``new_only=True`` leaves out what a person has seen.

rows = [{"image": person, "tags": watched} for person, watched in seen.items()]
tagger = visterm.fit(rows, encoder="ids", n_jobs=1)
popular = visterm.fit(rows, encoder="ids", model="prior")
print(seen["person 7"])
print([tag.tag for tag in tagger.annotate(["person 7"], k=5, new_only=True).images[0].tags])

# %%
# How often is a hidden film among the first k that we recommend, beside recommending what everyone watches?

people = list(seen)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.3), layout="constrained", width_ratios=[2, 3])
for name, recommender, colour in (("auto", tagger, "#0072B2"), ("most watched", popular, "#E69F00")):
    lists = recommender.annotate(people, k=10, new_only=True).images
    hits = np.array([[tag.tag in hidden[one.image] for tag in one.tags] for one in lists])
    left.plot(range(1, 11), hits.cumsum(axis=1).mean(axis=0) / 2, "o-", color=colour, label=name)
left.set(xlabel="films recommended", ylabel="share of the hidden films among them", ylim=(0, 1))
left.legend(frameon=False)
left.spines[["top", "right"]].set_visible(False)

# %%
# And what does it recommend to whom? Each row is a person; grey films are seen, blue ones recommended.

grid = np.ones((30, 60, 3))
for row, one in enumerate(tagger.annotate(people[:30], k=5, new_only=True).images):
    grid[row, [films.index(film) for film in seen[one.image]]] = 0.75
    grid[row, [films.index(tag.tag) for tag in one.tags]] = (0.0, 0.45, 0.70)
right.imshow(grid, aspect="auto", interpolation="none")
right.set_xticks(np.arange(4.5, 60, 10), dict.fromkeys(kinds))
right.set(ylabel="people", yticks=[], title="seen (grey) and recommended (blue)")
for edge in range(10, 60, 10):
    right.axvline(edge - 0.5, color="white", linewidth=2)
plt.show()

# %%
# **What you learn.** Nothing in visterm needs pixels. With ``encoder="ids"`` the same ``fit`` and ``annotate``
# recommend, and mostly what a person likes.
