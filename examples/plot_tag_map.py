"""
The tag map: which tags the photos make neighbours
==================================================

``wsabie`` gives every tag a vector, and tags of photos that look alike get vectors that point the same way. A map of
these vectors shows what the model knows about your words, without anybody telling it what they mean.
"""

import matplotlib.pyplot as plt

import visterm
from visterm.tagging.tag_map import tag_map
from visterm_research.scenes import IS_A, draw_scene

# %%
# 400 drawn scenes with their tags. Tags on fewer than six photos are left out.

scenes = [draw_scene((1, number)) for number in range(400)]
tagger = visterm.fit(
    [scene.image for scene in scenes], [scene.tags for scene in scenes], model="wsabie", min_count=6, n_jobs=1,
    encoder="visterms", encoder_params={"codebook": 1000, "sample_blocks": 20_000}, model_params={"epochs": 30},
    calibrate=False,
)  # fmt: skip

# %%
# The nearest tags of a few, by cosine:

for tag in ("snow", "sea", "street", "animal"):
    print(f"{tag}: {', '.join(near.tag for near in tagger.neighbours(tag, 4))}")

# %%
# The map puts all tags on one page by t-SNE: tags that lie near belong together, while distances between far groups
# mean little. Colours show kinds that *we* know of; the model has never seen them.

kinds = dict(IS_A)
colours = {"animal": "#D55E00", "plant": "#009E73", "vehicle": "#CC79A7", "building": "#8C6D31", "water": "#0072B2"}


def colour_of(tag):
    """Return the colour of the kind that a tag belongs to, however far above it."""
    while tag not in colours and tag in kinds:
        tag = kinds[tag]
    return colours.get(tag, "#555555")


figure, axes = plt.subplots(figsize=(9, 6.5), layout="constrained")
taken = []
for place in sorted(tag_map(tagger.model, tagger.vocabulary), key=lambda place: -place.images):
    y, size = place.y, 7 + 1.1 * place.images**0.4
    while any(abs(place.x - x) < 0.07 and abs(y - other) < 0.028 for x, other in taken):
        y -= 0.007  # so that no word covers another
    taken.append((place.x, y))
    axes.text(place.x, y, place.tag, color=colour_of(place.tag), fontsize=size, ha="center", va="center")
for kind, colour in {**colours, "other": "#555555"}.items():
    axes.scatter([], [], color=colour, label=kind)
axes.set(xlim=(-0.06, 1.06), ylim=(-0.04, 1.04), xticks=[], yticks=[])
axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncols=6, frameon=False)
plt.show()

# %%
# **What you learn.** Look at the map before you trust a model: things of the sea should lie together, so should the
# street, and a tag between two groups is often used for two things. On the page of a catalogue it is at ``/tags/map``.
