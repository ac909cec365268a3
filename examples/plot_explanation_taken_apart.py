"""
An explanation taken apart: what each word gave to the score
============================================================

A linear model's score is a sum, so it can be taken apart without a guess: each feature gives its value times its
weight. Here the features are words that you can read: captions beside photos. The same works for visterms, colours, or
the numbers of a neural network.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from visterm.models import Ridge

# %%
# We make 600 captions. A walk has a place and a kind of weather, and the words of its caption come from both. Words
# such as *nice* say nothing.

rng = np.random.default_rng(0)
words_of = {
    "beach": ["sand", "waves", "towel", "shells", "sea"],
    "mountain": ["summit", "rope", "glacier", "hut", "meadow"],
    "city": ["tram", "museum", "street", "café", "crowd"],
    "sunny": ["hot", "bright", "shade", "sunglasses"],
    "rain": ["umbrella", "wet", "grey", "puddles"],
}
all_words = [word for words in words_of.values() for word in words]
captions, tags = [], []
for _ in range(600):
    given = [str(rng.choice(["beach", "mountain", "city"])), str(rng.choice(["sunny", "rain"]))]
    words = [word for tag in given for word in rng.choice(words_of[tag], 2, replace=False)]
    words += [*rng.choice(["nice", "friends", "morning", "again"], 2, replace=False), rng.choice(all_words)]
    captions.append(" ".join(rng.permutation(words)))
    tags.append(given)
print(captions[0], tags[0], sep="\n")

# %%
# scikit-learn counts the words, and a model of visterm learns the tags.

counter = CountVectorizer(token_pattern=r"[\w-]+")
model = Ridge().fit(counter.fit_transform(captions), tags)

# %%
# Now someone writes a new caption. Why *beach*, and why not *mountain*?

caption = "wet towel shells and a grey morning again puddles instead of waves"
x = counter.transform([caption])
score = dict(zip(model.classes_, model.decision_function(x)[0], strict=True))
vocabulary = np.array(counter.get_feature_names_out())

figure, axes = plt.subplots(1, 3, figsize=(11, 4.2), layout="constrained", sharex=True, sharey=True)
names = [word for word in caption.split() if word in set(vocabulary)]
for panel, tag in zip(axes, ("beach", "rain", "mountain"), strict=True):
    parts = model.explain(x, list(model.classes_).index(tag))
    shares = dict(zip(vocabulary, parts.shares, strict=True))
    steps = [parts.constant, *(shares[word] for word in names)]
    starts = np.concatenate([[0], np.cumsum(steps)[:-1]])
    colours = ["#D55E00" if step > 0 else "#0072B2" for step in steps]
    bars = panel.barh(range(len(steps)), steps, left=starts, color=colours)
    panel.bar_label(bars, [f"{step:+.2f}" if abs(step) > 0.02 else "" for step in steps], padding=4, fontsize=8)
    assert np.isclose(sum(steps), score[tag], atol=1e-5)  # the parts sum to the score
    panel.axvline(score[tag], color="black", linewidth=1, linestyle=":")
    panel.set(title=f"{tag}: {score[tag]:.2f}", xlabel="score so far")
    panel.set_yticks(range(len(steps)), ["without any word", *names])
    panel.spines[["top", "right"]].set_visible(False)
axes[0].invert_yaxis()
plt.show()

# %%
# Each bar begins where the one above it ended, and the last one ends at the score (dotted). *towel* and *shells* lift
# *beach* and lower *mountain*; *wet*, *grey* and *puddles* move *rain*; *again* moves hardly anything.
#
# **What you learn.** ``model.explain(x, tag)`` returns ``shares`` (one per feature) and ``constant``, and they sum to
# the score exactly. If a tag is wrong, you see which feature to blame.
