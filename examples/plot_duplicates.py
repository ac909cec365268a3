"""
Duplicates: copies found, and the one to keep
=============================================

Libraries fill up with copies: smaller ones that were sent by a messenger, backups, pictures saved again. visterm groups
photos that look the same and names the one to keep. It deletes nothing.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from PIL import Image

import visterm
from visterm.library.duplicates import find_duplicates
from visterm_research.scenes import draw_scene

# %%
# A library of 60 drawn scenes. Three have copies: at half the size and in poor quality. One has a backup, too.

folder = Path(tempfile.mkdtemp())
(folder / "photos" / "backup").mkdir(parents=True)
scenes = [draw_scene((3, number), size=(240, 180)) for number in range(60)]
photos = [Image.fromarray(scene.image) for scene in scenes]
for number, photo in enumerate(photos):
    photo.save(folder / "photos" / f"{number:03}.jpg", quality=92)
for number in (5, 17, 29):
    photos[number].resize((120, 90)).save(folder / "photos" / f"sent_{number}.jpg")
    photos[number].save(folder / "photos" / f"{number:03} (1).jpg", quality=25)
photos[17].save(folder / "photos" / "backup" / "017.jpg", quality=92)

# %%
# A catalogue finds them by a short hash of how each photo looks. (A catalogue needs a run; here any will do.)

tagger = visterm.fit(
    photos, [scene.tags for scene in scenes], model="ridge", calibrate=False, n_jobs=1,
    encoder="visterms", encoder_params={"codebook": 100, "sample_blocks": 2000},
)  # fmt: skip
catalogue = visterm.Catalogue.create(folder / "catalogue", tagger)
catalogue.index(folder / "photos")
found = find_duplicates(catalogue.stored, n_jobs=1)
print(len(found.groups), "groups;", sum(len(group.copies) for group in found.groups), "copies")

# %%
# Each row is a group: the photo to keep, then its copies, with the bits of 64 in which their hashes differ.

most = max(len(group.copies) for group in found.groups)
figure, axes = plt.subplots(len(found.groups), most + 1, figsize=(10, 6), layout="constrained")
for row, group in zip(axes, found.groups, strict=True):
    same = {True: "the same file", False: "{} bits differ"}
    shown = [(group.keeper, "keep"), *((c.image, same[c.same_bytes].format(c.distance)) for c in group.copies)]
    for panel in row:
        panel.axis("off")
    for panel, (image, words) in zip(row, shown, strict=False):
        picture = Image.open(image.path)
        panel.imshow(picture)
        title = f"{image.name}\n{picture.width} × {picture.height}: {words}"
        panel.set_title(title, fontsize=9, color="#007755" if words == "keep" else "black")
plt.show()

# %%
# **What you learn.** Copies are found even where no byte of them is the same, and the largest original is kept. On
# the command line ``visterm duplicates CATALOGUE`` lists them, and ``--hide`` gives their tags to the one that stays.
