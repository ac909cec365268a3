"""A notebook that uses the public names: `make lint` checks its types as an editor does. It is not run."""

from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score

import visterm
from visterm.cli.output import Bars
from visterm.encoders import Visterms
from visterm.models import Ridge, Wsabie

frame = pd.DataFrame({"path": ["a.jpg"] * 30, "tags": [["x", "y"], ["x"]] * 15})
tagger = visterm.fit(frame, model=Ridge(alpha=3), encoder=Visterms(max_side=256), min_count=2, say=print)
tagger.save("run", overwrite=True)
loaded = visterm.Tagger.load("run")
for photo in loaded.annotate(Path("photos"), k=3).images:
    print(photo.image, [(tag.tag, tag.confidence) for tag in photo.tags])
chances, indicator = loaded.predict_proba(["a.jpg"]), loaded.predict(["a.jpg"])
print(
    chances.shape, indicator.sum(), loaded.classes_, loaded.transform(["a.jpg"]).shape, loaded.encode(["a.jpg"]).skipped
)
explanation = loaded.explain("a.jpg", "x")
print(explanation.score, explanation.places[0].share)
catalogue = visterm.Catalogue.create("catalogue", loaded)
catalogue.index("photos", progress=Bars())
for hit in visterm.Catalogue.open("catalogue").search("x -y", k=3).hits:
    print(hit.image, hit.confidence)
measured = visterm.evaluate([loaded, "other run"], frame, metrics=["map"], report="report")
print(measured.values["map"], measured.to_pandas().head(), visterm.to_frame(measured, "polars").height)
by_classifier = visterm.fit(frame, model=LogisticRegression(C=10))
print(by_classifier.score(frame))
search = GridSearchCV(visterm.Tagger(model="ridge"), {"model__alpha": [1, 10]}, scoring=visterm.scorer("p@5"))
print(search.fit(frame["path"], frame["tags"]).best_params_)
X, Y = np.zeros((10, 3), np.float32), np.eye(10, 4)
ids, scores = Wsabie(dim=8).fit(X, Y).annotate(X, k=2)
print(ids.shape, scores.shape, Ridge().fit(X, [["x"]] * 10).annotate(X, k=1).tags[:, 0])
print(cross_val_score(Ridge(), X, Y, scoring=visterm.scorer("p@1")), visterm.fit(X, Y, model="ridge").predict(X).sum())
recommender = visterm.fit_pairs({"user": ["a"], "item": [1]}, model="ease")
print(recommender.recommend(["a"], k=1).items, recommender.similar_items([1]).to_pandas())
