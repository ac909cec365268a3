"""A notebook that uses the public names: `make lint` checks its types as an editor does. It is not run."""

from pathlib import Path

import numpy as np
import pandas as pd

import visterm
from visterm.encoders import Visterms
from visterm.models import Ridge, Wsabie

frame = pd.DataFrame({"path": ["a.jpg"] * 30, "tags": [["x", "y"], ["x"]] * 15})
tagger = visterm.fit(frame, model=Ridge(alpha=3), encoder=Visterms(max_side=256), min_count=2)
tagger.save("run", overwrite=True)
loaded = visterm.Tagger.load("run")
for photo in loaded.annotate(Path("photos"), k=3).images:
    print(photo.image, [(tag.tag, tag.confidence) for tag in photo.tags])
chances = loaded.predict_proba(["a.jpg"])
print(chances.shape, loaded.classes_, loaded.transform(["a.jpg"]).shape)
explanation = loaded.explain("a.jpg", "x")
print(explanation.score, explanation.places[0].share)
catalogue = visterm.Catalogue.create("catalogue", loaded)
catalogue.index("photos")
for hit in visterm.Catalogue.open("catalogue").search("x -y", k=3).hits:
    print(hit.image, hit.confidence)
measured = visterm.evaluate(loaded, frame, metrics=["map"])
print(measured.values["map"], measured.to_pandas())
X, Y = np.zeros((10, 3), np.float32), np.eye(10, 4)
model = Wsabie(dim=8).fit(X, Y)
ids, scores = model.annotate(X, k=2)
recommender = visterm.fit_pairs({"user": ["a"], "item": [1]}, model="ease")
print(recommender.recommend(["a"], k=1).items, recommender.similar_items([1]).to_pandas())
