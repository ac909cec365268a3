"""
Parts of things: a car, its wheel, and what nobody said
=======================================================

``objects_and_parts`` learns from tagged pictures and from a list of which words name parts of which (Mesnil and others
2014). In no picture a part has to be marked. Then it labels a thing together with a close-up of its part.
"""

import matplotlib.pyplot as plt
import numpy as np

import visterm
from visterm.learning.relations import WordRelations
from visterm.tagging.part_relations import label_pair
from visterm_research.scenes import PART_OF, draw_scene

# %%
# From drawn scenes we cut out things and parts that are large enough to see. Each cut-out has one tag: its name.

WHOLES = {"house", "car", "bus", "horse", "elephant", "oak", "palm", "aeroplane", "sailboat", "lighthouse"}


def cut_out(scene, box):
    """Return what is inside a box, with a little around it."""
    return scene.image[max(0, box[1] - 2) : box[3] + 2, max(0, box[0] - 2) : box[2] + 2]


def side(box):
    """Return the shorter side of a box in pixels."""
    return min(box[2] - box[0], box[3] - box[1])


crops, tags, pairs = [], [], []
for number in range(300):
    scene = draw_scene((1, number), size=(256, 192))
    for thing in scene.objects:
        if thing.name in WHOLES and side(thing.box) >= 28:
            crops, tags = [*crops, cut_out(scene, thing.box)], [*tags, [thing.name]]
            for part in {part.name: part for part in thing.parts if side(part.box) >= 12}.values():
                crops, tags = [*crops, cut_out(scene, part.box)], [*tags, [part.name]]
                pairs.append((len(tags) - 1, thing.name, part.name, cut_out(scene, thing.box)))
print(len(crops), "cut-outs of", len({tag for [tag] in tags}), "things and parts")

# %%
# It learns from four fifths of them, and from the relations. The last fifth is for us to look at.

end = int(0.8 * len(crops))
known = WordRelations([(part, whole) for part, whole in PART_OF if whole in WHOLES])
tagger = visterm.Tagger(
    model="objects_and_parts", model_params={"epochs": 40, "dim": 50}, min_count=3, n_jobs=1,
    encoder="visterms", encoder_params={"codebook": 400, "sample_blocks": 10_000, "max_side": 128},
).fit(crops[:end], tags[:end], relations=known, calibrate=False)  # fmt: skip

# %%
# How often is the part named right: from its close-up alone, and together with the thing?

new = [pair for pair in pairs if pair[0] >= end and pair[1] in tagger.vocabulary and pair[2] in tagger.vocabulary]
alone = tagger.annotate([crops[number] for number, *_ in new], k=1).images
alone = np.mean([one.tags[0].tag == part for one, (_, _, part, _) in zip(alone, new, strict=True)])
beside = np.mean([label_pair(tagger, crop, crops[number], 1)[0].part == part for number, _, part, crop in new])
print(f"{len(new)} parts; right alone: {alone:.0%}, beside the thing: {beside:.0%}")

# %%
# Above, the thing; below, the close-up of a part; and the pair of words that fits both pictures and goes together.

chosen = [new[i] for i in np.linspace(0, len(new) - 1, 8).astype(int)]
figure, axes = plt.subplots(2, 8, figsize=(12, 3.6), layout="constrained")
for (above, below), (number, whole, part, crop) in zip(axes.T, chosen, strict=True):
    best = label_pair(tagger, crop, crops[number], 1)[0]
    for panel, picture, found, true in ((above, crop, best.object, whole), (below, crops[number], best.part, part)):
        panel.imshow(picture)
        panel.set(xticks=[], yticks=[])
        right = found == true
        panel.set_title(found if right else f"{found} ({true})", color="#007755" if right else "#C04000", fontsize=10)
plt.show()

# %%
# **What you learn.** With a list of words and their parts, two pictures help each other: something round beside a car
# is a wheel. Green labels are right; where one is wrong, the true one is in brackets.
