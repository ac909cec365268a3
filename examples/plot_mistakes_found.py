"""
Mistakes found: tags that are wrong, and tags that are missing
==============================================================

People mistype, mix up photos and forget tags. visterm looks for such mistakes: copies of the model each learn from
four fifths of the photos and judge the rest. Here we plant the mistakes ourselves, so that we can count how many are
found.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

import visterm
from visterm_research.scenes import draw_scene

# %%
# 300 drawn scenes, with a dozen of the true tags. Then we take away one tag in fifteen, and give one photo in ten a
# tag that isn't true.

WORDS = {"snow", "sea", "night", "sunset", "house", "tree", "grass", "street", "forest", "desert", "mountain", "sky"}
folder = Path(tempfile.mkdtemp())
(folder / "photos").mkdir()
rng = np.random.default_rng(0)
rows, missing, wrong = [], set(), set()
for number in range(300):
    scene, name = draw_scene((1, number)), f"{number:03}.jpg"
    Image.fromarray(scene.image).save(folder / "photos" / name)
    true = WORDS & set(scene.tags)
    forgotten = {tag for tag in sorted(true) if rng.random() < 1 / 15}
    invented = {str(rng.choice(sorted(WORDS - true)))} if rng.random() < 0.1 else set()
    missing |= {(name, tag) for tag in forgotten}
    wrong |= {(name, tag) for tag in invented}
    rows.append({"file_name": name, "tags": sorted(true - forgotten | invented)})
print(len(missing), "tags are missing,", len(wrong), "are wrong")

# %%
# A catalogue holds the photos with their tags and looks for mistakes.

tagger = visterm.fit(
    folder / "photos", tags=rows, model="ridge", n_jobs=1, calibrate=False,
    encoder="visterms", encoder_params={"codebook": 1000, "sample_blocks": 20_000},
)  # fmt: skip
catalogue = visterm.Catalogue.create(folder / "catalogue", tagger)
catalogue.index(folder / "photos", [row["tags"] for row in rows])
catalogue.look_for_mistakes()
found = catalogue.mistakes(6, kind="missing") + catalogue.mistakes(6, kind="wrong")

# %%
# The six most probable ones of each kind. A tick says that we planted it.

figure, axes = plt.subplots(3, 4, figsize=(10, 7), layout="constrained")
for panel, mistake in zip(axes.flat, found, strict=True):
    planted = (mistake.image, mistake.tag) in (missing if mistake.kind == "missing" else wrong)
    panel.imshow(Image.open(folder / "photos" / mistake.image))
    said = f"no {mistake.tag}" if mistake.kind == "missing" else mistake.tag
    panel.set_title(f"people said: {said}", fontsize=10)
    chance = mistake.reason or f"{mistake.chance:.0%}"
    panel.set_xlabel(f"{mistake.kind}: {chance}  {'✓' if planted else '✗'}", fontsize=10,
                     color="#007755" if planted else "#C04000")  # fmt: skip
    panel.set(xticks=[], yticks=[])
plt.show()

# %%
# **What you learn.** A short list of photos to look at, missing tags first, in place of a library to read through.
# Answer it on the review page, and the other chances adapt to your library. On the command line:
# ``visterm mistakes CATALOGUE -o mistakes.html``.
