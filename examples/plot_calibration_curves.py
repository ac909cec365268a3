"""
Calibration curves: when visterm says 80 %, how often is it right?
==================================================================

Scores only rank. To decide which tags to keep, you need chances that hold: of all tags given with 80 %, about 80 %
should be right. visterm learns them from photos that the model has not learned from. Here we check the promise on new
photos.
"""

import matplotlib.pyplot as plt
import numpy as np

import visterm
from visterm_research.scenes import draw_scene

# %%
# 400 photos to learn from, and 300 new ones whose true tags we know.

scenes = [draw_scene((1, number)) for number in range(700)]
known, new = scenes[:400], scenes[400:]
tagger = visterm.fit(
    [scene.image for scene in known], [scene.tags for scene in known], model="ridge", min_count=4, n_jobs=1,
    encoder="visterms", encoder_params={"codebook": 1000, "sample_blocks": 20_000},
)  # fmt: skip

# %%
# ``k=0`` returns every tag of every photo with its chance.

count = dict(zip(tagger.vocabulary, tagger.vocabulary.counts, strict=True))
promised, right, photos = [], [], []
for scene, one in zip(new, tagger.annotate([scene.image for scene in new], k=0).images, strict=True):
    promised += [tag.confidence for tag in one.tags]
    right += [tag.tag in scene.tags for tag in one.tags]
    photos += [count[tag.tag] for tag in one.tags]
promised, right, photos = np.array(promised), np.array(right), np.array(photos)

# %%
# We sort all pairs of a photo and a tag into bins by their chance, and count in each bin how many are right. On the
# diagonal, chances are exactly right. The bars show the 95 % range that the number of pairs allows by chance alone.

figure, (left, right_side) = plt.subplots(1, 2, figsize=(9.5, 4.4), layout="constrained")
edges = np.array([0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1])
groups = {"tags on 40 photos or more": photos >= 40, "tags on fewer": photos < 40}
left.plot([0, 1], [0, 1], color="#999999", linestyle="--")
for (name, chosen), colour in zip(groups.items(), ("#0072B2", "#E69F00"), strict=True):
    bins = np.digitize(promised[chosen], edges[1:-1])
    n = np.bincount(bins, minlength=len(edges) - 1)
    few = n < 10  # too few to say anything
    x, y = (np.bincount(bins, values[chosen], len(n)) / np.where(few, np.nan, n) for values in (promised, right))
    left.errorbar(x, y, 1.96 * np.sqrt(y * (1 - y) / n.clip(1)), fmt="o-", color=colour, label=name, capsize=2)
left.set(xlabel="promised", ylabel="right", title="Chances that hold", xlim=(0, 1), ylim=(0, 1), aspect="equal")
left.legend(frameon=False, loc="upper left", fontsize=9)

# %%
# Chances that hold make cut-offs useful: ``precision=0.8`` keeps as many tags as it can while four in five are right.

wanted = [0.5, 0.6, 0.7, 0.8, 0.9]
reached, kept = [], []
for level in wanted:
    lists = tagger.annotate([scene.image for scene in new], precision=level).images
    given = [tag.tag in scene.tags for scene, one in zip(new, lists, strict=True) for tag in one.tags]
    reached.append(np.mean(given))
    kept.append(len(given) / len(new))
right_side.plot([0.4, 1], [0.4, 1], color="#999999", linestyle="--")
right_side.plot(wanted, reached, "o-", color="#009E73")
for x, y, n in zip(wanted, reached, kept, strict=True):
    right_side.annotate(f"{n:.1f} tags a photo", (x, y), (8, -12), textcoords="offset points", fontsize=9)
right_side.set(
    xlabel="precision asked for", ylabel="precision on new photos", title="Cut-offs", ylim=(0.4, 1), xlim=(0.4, 1.12)
)
plt.show()

# %%
# **What you learn.** Use chances, not scores, to decide. Ask for a precision, and look at how many tags you get for it.
# Chances learned from 400 photos aren't perfect: here those around 55 % are too high, and the highest too low.
