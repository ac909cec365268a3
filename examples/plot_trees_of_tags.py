"""
Trees of tags: a husky is a dog, and a dog is an animal
=======================================================

Many libraries keep their tags in a tree. With a tree, a photo of an oak is one of a tree and of a plant, too: in what
the model learns, in searches, and in what it says about new photos.
"""

import matplotlib.pyplot as plt

import visterm
from visterm_research.scenes import IS_A, NOUNS, draw_scene

# %%
# People gave only the most specific tags: *oak*, never *tree* or *plant*. The tree is a list of child and parent.

parents = {parent for _, parent in IS_A}
scenes = [draw_scene((1, number)) for number in range(400)]
photos = [scene.image for scene in scenes]
tags = [[tag for tag in scene.tags if tag in NOUNS and tag not in parents] for scene in scenes]
tagger = visterm.fit(
    photos[:300], tags[:300], tree=IS_A, model="ridge", min_count=3, n_jobs=1,
    encoder="visterms", encoder_params={"codebook": 1000, "sample_blocks": 20_000},
)  # fmt: skip
print(sorted(parents & set(tagger.vocabulary)), "were learned, though nobody gave them")

# %%
# For a new photo we draw the tree with the chance of each tag. Of a hundred with a tree we take the one where the
# model is surest of the tree and least sure between oak, birch and pine. No tag is less likely than one under it.


def draw_tree(axes, chances):
    """Draw tags from left to right, children beside their parent; dark and thick means likely."""
    rows = iter(range(100))

    def place(tag, x):
        """Draw a tag and all under it; return its height."""
        below = [(child, place(child, x + 1)) for child, parent in IS_A if parent == tag and child in chances]
        y = sum(height for _, height in below) / len(below) if below else -next(rows)
        for child, height in below:
            sure = chances[child]
            axes.plot([x + 0.62, x + 0.97], [y, height], color="#0072B2", alpha=max(sure, 0.15), linewidth=1 + 3 * sure)
        axes.text(x, y, f"{tag} {chances[tag]:.0%}", va="center", fontsize=11, color=str(0.65 * (1 - chances[tag])))
        return y

    for root in ("plant", "animal", "vehicle", "building"):
        if root in chances:
            place(root, 0)
    axes.set(xlim=(-0.05, 3), ylim=(-next(rows), 1))


lists = [{tag.tag: tag.confidence for tag in one.tags} for one in tagger.annotate(photos[300:], k=0).images]
under = [child for child, parent in IS_A if parent == "tree" and child in lists[0]]
gaps = [chances["tree"] - max(chances[child] for child in under) for chances in lists]
best = max((i for i in range(100) if "tree" in scenes[300 + i].tags), key=lambda i: gaps[i])
figure, (picture, chart) = plt.subplots(1, 2, figsize=(9, 4.5), layout="constrained", width_ratios=[4, 5])
picture.imshow(photos[300 + best])
draw_tree(chart, {tag: chance for tag, chance in lists[best].items() if chance > 0.03})
picture.axis("off")
chart.axis("off")
plt.show()

# %%
# **What you learn.** Give the most specific tag that you know, and let the tree add the rest. Where the model can't
# tell an oak from a birch, it can still be sure of the tree. On the command line:
# ``visterm fit photos --tree tree.csv``.
