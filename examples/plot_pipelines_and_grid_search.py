"""
scikit-learn pipelines and grid search
======================================

Encoders are transformers and models are estimators, so whatever you know from scikit-learn works: pipelines that learn
from photos and other columns, cross-validation, and grid search.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

import visterm
from visterm.encoders import Visterms
from visterm.models import Knn, Ridge
from visterm_research.scenes import draw_scene

# %%
# A DataFrame of 180 photos. For each photo we also know the hour, which the picture shows only in part.

rng = np.random.default_rng(0)
scenes = [draw_scene((1, number)) for number in range(180)]
hours = [rng.normal(23 if "night" in s.tags else 19 if "sunset" in s.tags else 12, 1.5) for s in scenes]
frame = pd.DataFrame({"photo": [scene.image for scene in scenes], "evening": [max(h - 12, 0) for h in hours]})
tags = [list(scene.tags) for scene in scenes]

# %%
# One pipeline from photos and numbers to tags. ``score`` is mean average precision.

small = Visterms(codebook=400, sample_blocks=10_000, n_jobs=1)
both = ColumnTransformer([("photo", small, "photo"), ("rest", MaxAbsScaler(), ["evening"])])
pipeline = make_pipeline(both, Ridge()).fit(frame[:120], tags[:120])
print(f"MAP with the hour: {pipeline.score(frame[120:], tags[120:]):.3f}")

# %%
# Encoding takes the time and doesn't need the tags, so a search over models encodes once. ``visterm.scorer`` has every
# measure of ``visterm metrics``.

X = pipeline[0].transform(frame)
ridge = GridSearchCV(Ridge(), {"alpha": [0.001, 0.01, 0.1, 1, 10]}, cv=3, scoring=visterm.scorer("map")).fit(X, tags)
grid = {"n_neighbors": [2, 5, 10, 20, 40], "power": [0.0, 2.0, 8.0]}
knn = GridSearchCV(Knn(), grid, cv=3, scoring=visterm.scorer("map")).fit(X, tags)
print(ridge.best_params_, knn.best_params_, sep="\n")
for name, model in (("ridge", ridge.best_estimator_), ("knn", knn.best_estimator_)):
    print(name, cross_val_score(model, X, tags, cv=3, scoring=visterm.scorer("p@5")).round(3))

# %%
# A picture of both searches; bars show the spread over the three folds.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", sharey=True)
results = pd.DataFrame(ridge.cv_results_)
axes[0].errorbar(results["param_alpha"], results["mean_test_score"], results["std_test_score"], fmt="o-", capsize=3)
axes[0].set(xscale="log", xlabel="alpha", ylabel="MAP of the folds", title="ridge")
for power, part in pd.DataFrame(knn.cv_results_).groupby("param_power"):
    axes[1].plot(part["param_n_neighbors"], part["mean_test_score"], "o-", label=f"power {power:g}")
axes[1].set(
    xscale="log", xticks=grid["n_neighbors"], xticklabels=grid["n_neighbors"], xlabel="n_neighbors", title="knn"
)
axes[1].minorticks_off()
axes[1].legend(frameon=False, loc="lower center")
for panel in axes:
    panel.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# **What you learn.** Encode once, then search over models as you would over any estimator. A
# ``ColumnTransformer`` adds what is not in the pixels.
