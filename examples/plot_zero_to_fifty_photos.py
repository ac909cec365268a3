"""
Zero to fifty photos a tag: starting from what words mean
=========================================================

Networks such as CLIP turn photos *and* words into vectors of one space, so a tag can be found before any photo has it.
But your *Bella* isn't everybody's *dog*. ``text_ridge`` starts each tag from the vector of its word and learns from
every photo that has it. How many photos does it take until the word doesn't matter any more?
"""

import matplotlib.pyplot as plt
import numpy as np

from visterm.metrics import evaluate
from visterm.models import Ridge, TextRidge

# %%
# We plant the two towers of such a network. Each of 60 tags has a vector that photos follow, and a word vector that
# points only roughly the same way: words describe photos, but not exactly yours. Twenty of the tags are new.

rng = np.random.default_rng(0)
n_tags, n_new, width = 60, 20, 128
meant = rng.normal(size=(n_tags, width))
words = (meant + 1.8 * rng.normal(size=meant.shape)).astype(np.float32)
Y_all = np.zeros((4000, n_tags), np.float32)
np.put_along_axis(Y_all, rng.permuted(np.tile(np.arange(n_tags), (4000, 1)), axis=1)[:, :2], 1, axis=1)
X_all = (Y_all @ meant + 2.5 * rng.normal(size=(4000, width))).astype(np.float32)
X_test, Y_test = X_all[3000:], Y_all[3000:, :n_new]

# %%
# Three ways to score a photo: by the words alone (*zero-shot*), by the photos alone (``ridge``), and by both
# (``text_ridge``). The new tags have none to fifty photos each; the others have all theirs.


def judged(scores):
    """Return how well searches for the new tags rank the test photos."""
    return evaluate(np.ascontiguousarray(scores[:, :n_new]), Y_test, "word_map")["word_map"]


counts = [0, 1, 2, 5, 10, 20, 50]
zero_shot = judged(X_test @ (words / np.linalg.norm(words, axis=1, keepdims=True)).T)
found = {"ridge": [], "text_ridge": []}
for count in counts:
    kept = (Y_all[:3000, :n_new].cumsum(axis=0) <= count).all(axis=1) | (Y_all[:3000, :n_new].sum(axis=1) == 0)
    X, Y = X_all[:3000][kept], Y_all[:3000][kept]
    for name, model in (("ridge", Ridge()), ("text_ridge", TextRidge(word_vectors=words))):
        found[name].append(judged(model.fit(X, Y).decision_function(X_test)))

# %%
# Mean average precision (MAP) of a search is 1 if every photo with the tag stands above every other one.

figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
axes.axhline(zero_shot, color="#999999", linestyle="--")
axes.text(len(counts) - 1, zero_shot, "words alone (zero-shot)", color="#666666", ha="right", va="bottom")
for (name, values), colour in zip(found.items(), ("#E69F00", "#0072B2"), strict=True):
    axes.plot(values, "o-", color=colour, label=name)
axes.set_xticks(range(len(counts)), counts)
axes.set(xlabel="photos of each new tag", ylabel="MAP of searches for the new tags", ylim=(0, 1))
axes.legend(frameon=False, loc="lower right")
axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# **What you learn.** With no photo, ``text_ridge`` is as good as the words. With one to ten photos it is better than
# words or photos alone, and with fifty it is as good as the photos; in between, at about twenty, these words still hold
# it back a little. So you never have to decide when to stop trusting the words. With a network of your own:
# ``visterm fit photos --encoder siglip2 --model text_ridge``.
