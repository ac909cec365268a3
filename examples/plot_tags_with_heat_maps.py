"""
Tags with heat maps: where in the photo a tag comes from
========================================================

visterm learns the tags of photos, tags new ones, and shows which places of a photo raise the score of a tag and which
lower it. The photos here are computer-drawn scenes, so that you can run this anywhere; yours work the same way.
"""

import matplotlib.pyplot as plt
import numpy as np

import visterm
from visterm.tagging.explain import heat
from visterm_research.scenes import draw_scene

# %%
# A library of 300 photos with their tags. ``ridge`` learns one linear scorer for each tag, so its scores can be taken
# apart. A small codebook of 1,000 visterms (patches of texture and colour) keeps this quick; the default has 10,000.

scenes = [draw_scene((1, number)) for number in range(300)]
tagger = visterm.fit(
    [scene.image for scene in scenes], [scene.tags for scene in scenes], model="ridge", min_count=5, n_jobs=1,
    encoder="visterms", encoder_params={"codebook": 1000, "sample_blocks": 20_000},
)  # fmt: skip
print(tagger)

# %%
# Three new photos, larger than those that it learned from, with their best tags.

photos = [draw_scene((2, number), size=(288, 216)).image for number in (11, 4, 8)]
tagged = tagger.annotate(photos, k=4).images
for one in tagged:
    print(", ".join(f"{tag.tag} {tag.confidence:.0%}" for tag in one.tags))

# %%
# ``explain`` splits a tag's score into shares, and ``heat`` spreads them over the photo: warm places raise the score,
# blue ones lower it. All pixels together sum to the photo's share of the score.

figure, axes = plt.subplots(3, 3, figsize=(9, 7), layout="constrained")
for row, photo, one in zip(axes, photos, tagged, strict=True):
    row[0].imshow(photo)
    row[0].set_title(", ".join(tag.tag for tag in one.tags), fontsize=9)
    for panel, tag in zip(row[1:], one.tags[1:3], strict=True):
        warmth = heat(tagger.explain(photo, tag.tag), (photo.shape[1], photo.shape[0]))
        limit = np.abs(warmth).max()
        panel.imshow(photo.mean(axis=2), cmap="gray", vmin=-120, vmax=255)
        panel.imshow(warmth, cmap="RdBu_r", vmin=-limit, vmax=limit, alpha=0.6)
        panel.set_title(f"{tag.tag} ({tag.confidence:.0%})", fontsize=10)
for panel in axes.flat:
    panel.axis("off")
plt.show()

# %%
# **What you learn.** A tag comes with its chance and with its reason. If the warm places lie where you see the thing,
# trust the tag; if they lie elsewhere, the model has learned what usually stands beside it. On the command line:
# ``visterm explain RUN photo.jpg beach -o heat.png``.
