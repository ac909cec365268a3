"""
Streaming a data set larger than memory
=======================================

A million photos have features of many gigabytes. visterm then reads them from disk piece by piece, and holds a few
pieces at a time. To see this in a minute, we allow a small library even less memory.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from PIL import Image

import visterm
from visterm.features.job import encode_folder
from visterm_research.scenes import draw_scene

# %%
# 300 drawn scenes as files, 100 of them to test on, and their features in a folder, in shards of 50 photos.
# ``visterm encode`` does the same.

folder = Path(tempfile.mkdtemp())
(folder / "photos").mkdir()
lines = ["file_name,tags,split"]
for number in range(300):
    scene = draw_scene((1, number))
    Image.fromarray(scene.image).save(folder / "photos" / f"{number:04}.jpg")
    lines.append(f"{number:04}.jpg,{';'.join(scene.tags)},{'test' if number >= 200 else 'train'}")
(folder / "tags.csv").write_text("\n".join(lines), encoding="utf-8")
features = folder / "features"
small = {"codebook": 1000, "sample_blocks": 10_000}
encode_folder(folder / "photos", features, encoder="visterms", encoder_params=small, shard_size=50, n_jobs=1)
sizes = [file.stat().st_size for file in (features / "data").iterdir()]
print(f"{len(sizes)} shards with {sum(sizes) / 2**20:.1f} MB")

# %%
# The same fit twice: once in memory, and once with little enough memory to make it stream. ``say`` prints how.

runs = {}
for name, memory in (("in memory", None), ("streamed", 2**20)):
    limits = {"memory": memory, "work": folder / "work", "n_jobs": 1, "model_params": {"epochs": 12}}
    runs[name] = visterm.fit(features, tags=folder / "tags.csv", model="wsabie", say=print, **limits)

# %%
# Loss and quality, epoch by epoch, and on photos that neither has seen:

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", width_ratios=[3, 2])
for (name, run), colour in zip(runs.items(), ("#E69F00", "#0072B2"), strict=True):
    epochs = [entry["epoch"] for entry in run.model.history_]
    left.plot(epochs, [entry["loss"] for entry in run.model.history_], "o-", color=colour, label=name, markersize=3)
    measured = visterm.evaluate(run, features, tags=folder / "tags.csv", metrics=["map", "p@5"]).to_pandas()
    for place, value in enumerate(measured["mean"]):
        bar = right.bar(place + (0.2 if name == "streamed" else -0.2), value, 0.38, color=colour)
        right.bar_label(bar, fmt="%.2f")
left.set(xlabel="epoch", ylabel="loss", title="Training")
left.legend(frameon=False)
right.set(xticks=[0, 1], xticklabels=["MAP", "p@5"], ylim=(0, 1), title="On 100 new photos")
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# **What you learn.** Streaming is the same training in another order: it ends about as well, and memory no longer
# grows with the number of photos. ``visterm fit features --memory 1G`` decides by itself whether it has to stream.
