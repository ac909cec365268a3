"""
WARP against AUC: what happens at the top of the list
=====================================================

A photo page shows five tags, not five hundred. The AUC loss counts every pair of a right and a wrong tag alike, so a
mistake at rank 150 costs as much as one at rank 1. WARP counts mistakes at the top for more (Weston, Bengio and
Usunier 2010). Here both learn from the same planted photos.
"""

import matplotlib.pyplot as plt
import numpy as np

from visterm.metrics import evaluate
from visterm.models import Wsabie
from visterm_research.models import AucEmbedding

# %%
# We plant 200 tags. Each tag has a direction in a space of 60 features; a photo lies where its three tags point, with
# noise. A few tags are frequent and most are rare, as in real libraries.

rng = np.random.default_rng(0)
n_photos, n_tags, n_features = 3000, 200, 60
directions = rng.normal(size=(n_tags, n_features))
frequency = 1 / (1 + np.arange(n_tags)) ** 0.7
order = np.argsort(-(rng.gumbel(size=(n_photos, n_tags)) + np.log(frequency)), axis=1)
Y = np.zeros((n_photos, n_tags), np.float32)
np.put_along_axis(Y, order[:, :3], 1, axis=1)
X = (Y @ directions + 1.5 * rng.normal(size=(n_photos, n_features))).astype(np.float32)
train, test = slice(0, 2000), slice(2000, None)

# %%
# Both models have the same small space of 20 numbers for a photo. They differ in the loss, in the steps that are the
# defaults with it, and in how long they need: WARP looks for mistakes that matter and is done after 30 epochs; AUC
# draws pairs at random and still gets better after 200, so we let it go on for 300. (The losses alone, with the same
# steps: Table 5 of the WSABIE comparison.)

models = {
    "AUC": AucEmbedding(dim=20, epochs=300, patience=300, n_jobs=1, random_state=0),
    "WARP": Wsabie(dim=20, epochs=30, n_jobs=1, random_state=0),
}
ranks = np.arange(1, 11)
measures = [*(f"p@{k}" for k in ranks), "map", "auc"]
found = {}
for name, model in models.items():
    model.fit(X[train], Y[train])
    found[name] = evaluate(model.decision_function(X[test]), Y[test], measures)

# %%
# On the left, the share of right tags among the first few. On the right, two measures of the whole list: MAP, which
# looks mostly at the top, and the AUC, which counts all pairs the same.

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4), layout="constrained", width_ratios=[3, 2])
colours = {"AUC": "#E69F00", "WARP": "#0072B2"}
for name, values in found.items():
    left.plot(ranks, [values[f"p@{k}"] for k in ranks], "o-", color=colours[name], label=name)
left.set(xlabel="tags shown", ylabel="share that is right", xticks=ranks, ylim=(0, None), title="Precision at the top")
left.legend(frameon=False)
for shift, (name, values) in zip((-0.2, 0.2), found.items(), strict=True):
    bars = right.bar(np.arange(2) + shift, [values["map"], values["auc"]], 0.38, color=colours[name])
    right.bar_label(bars, fmt="%.2f")
right.set(xticks=[0, 1], xticklabels=["MAP", "AUC"], ylim=(0, 1.1), title="The whole list")
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# **What you learn.** Two models can be equally good over all pairs of tags and yet differ in the few tags that people
# see, and in how soon they get there. If you show a short list, choose a loss that works at its top:
# ``wsabie`` for a joint space, ``warp_linear`` for one linear scorer per tag.
