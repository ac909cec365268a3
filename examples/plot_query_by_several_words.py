"""
A query by several words: snow and a tree, but no building
==========================================================

Once photos are in a catalogue, you find them by words: several words, and words with ``-`` for what you don't want to
see. Here nobody has tagged the photos that are searched.
"""

import matplotlib.pyplot as plt

import visterm
from visterm_research.scenes import draw_scene

# %%
# The tagger learns from 300 tagged photos. The catalogue holds 500 others, without tags.

scenes = [draw_scene((1, number)) for number in range(800)]
tagged, others = scenes[:300], scenes[300:]
tagger = visterm.fit(
    [scene.image for scene in tagged], [scene.tags for scene in tagged], model="ridge", min_count=3, n_jobs=1,
    encoder="visterms", encoder_params={"codebook": 1000, "sample_blocks": 20_000},
)  # fmt: skip
catalogue = visterm.Catalogue(tagger).add([scene.image for scene in others])
print(catalogue)

# %%
# We search three times, with one word more each time. Rare words weigh more than frequent ones, and a photo is shown
# with the chance that it is what you meant.

queries = ["snow", "snow tree", "snow tree -building"]
found = [catalogue.search(query, k=6).hits for query in queries]
print(found[2][0])

# %%
# The frames are green where the photo really matches. We know that because the scenes were drawn.


def matches(scene, query):
    """Return whether a scene has all words of a query, and none of those with a minus."""
    return all((word.removeprefix("-") in scene.tags) != word.startswith("-") for word in query.split())


figure, axes = plt.subplots(3, 6, figsize=(11, 5.2), layout="constrained")
for row, query, hits in zip(axes, queries, found, strict=True):
    row[0].set_ylabel(query.replace(" -", "\n-"), fontsize=11)
    for panel, hit in zip(row, hits, strict=True):
        scene = others[hit.id]  # ids count from 0, in the order in which photos were added
        panel.imshow(scene.image)
        panel.set(xticks=[], yticks=[], title=f"{hit.confidence:.0%}")
        panel.spines[:].set(color="#009E73" if matches(scene, query) else "#D55E00", linewidth=4)
plt.show()

# %%
# **What you learn.** A search needs no tags on the photos that it looks through, only a few hundred tagged ones to
# learn the words from. ``-word`` takes out what you don't want, and the chance beside each photo tells you when to
# stop looking. On the command line: ``visterm search CATALOGUE "snow tree -building"``.
