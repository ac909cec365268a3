"""A catalogue of striped and dotted pictures in a folder, made in a second; which is which is known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from tiny_scenes import scene
from visterm.core.persist import new_folder
from visterm.learning.relations import WordRelations
from visterm.library.catalogue import Catalogue
from visterm.store.catalogue import StoredCatalogue
from visterm.tagging.tagger import Tagger

N_IMAGES = 24
KINDS = ("stripes", "dots")
SIZE = (64, 48)


class TinyCatalogue(NamedTuple):
    """Where the catalogue and its photos lie; image i is of kind ``KINDS[i % 2]``, and every third is "rare one"."""

    folder: Path
    photos: Path


def make_tiny_catalogue(
    folder: Path, model: str = "wsabie", n_images: int = N_IMAGES, tree: Sequence[tuple[str, str]] = ()
) -> TinyCatalogue:
    """Draw photos, fit a run on their tags, and index them; from 100 on it has confidences. `tree`: child, parent."""
    photos = folder / "photos"
    photos.mkdir(parents=True)
    digits = len(str(n_images - 1))
    for i in range(n_images):
        exif = Image.Exif()
        exif[0x010F] = "a camera that knows where I live"
        picture = Image.fromarray(scene(KINDS[i % 2], i, SIZE))
        picture.save(photos / f"{i:0{digits}d}.jpg", quality=95, exif=exif)
    tags = [[KINDS[i % 2], "rare one" if i % 3 == 0 else "thing"] for i in range(n_images)]
    paths = sorted(photos.iterdir())
    settings = {"colours": 4, "codebook": 12, "scales": (1.0,), "max_side": 64}
    params = {"dim": 8, "epochs": 20} if model == "wsabie" else {}
    tagger = Tagger(encoder="visterms", encoder_params=settings, model=model, model_params=params, n_jobs=1)
    tagger.fit(paths, tags, relations=WordRelations(tree=tree) if tree else None)
    catalogue = Catalogue.create(folder / "catalogue", tagger)
    catalogue.index(photos, tags)
    catalogue.stored.close()
    return TinyCatalogue(folder / "catalogue", photos)


def save_catalogue(catalogue: StoredCatalogue, path: Path) -> None:
    """Write a copy of a catalogue as a folder, in place of a catalogue that is there."""
    with new_folder(path, "catalogue", changing=True) as folder:
        catalogue.write_into(folder)
