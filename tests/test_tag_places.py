"""A person's tree of tags survives what visterm does with it: keywords are read, learned, written, and undone."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from PIL import Image

from remembered_library import N_TAGGED, RememberedLibrary, colour_of, connected, picture
from visterm import Catalogue, Tagger
from visterm.connectors.sync import PushSettings, sync, undo
from visterm.core.types import Tag
from visterm.data.corpus import Corpus
from visterm.data.sidecars import Sidecars
from visterm.data.tag_files import find_tags
from visterm.data.tag_tree import TagTree
from visterm.data.xmp.keywords import GIVEN, Mark, texts_of
from visterm.data.xmp.tree import Document
from visterm.data.xmp.writing import SIDECAR, add_tags
from visterm.library.export.items import ExportItem, Parents
from visterm.library.export.sources import Limits, open_source
from visterm.library.export.tables import table_of
from visterm.library.export.writing import PROFILES, export_tags, make_target, undo_tags
from visterm.web.api.vision import merge_labels

pytestmark = pytest.mark.usefixtures("plugin")

COLOURS = {"husky": (0, 0, 255), "AC/DC": (0, 90, 200), "crane": (0, 200, 0), "sky": (230, 230, 230)}
PLACES = {
    "husky": ("animal", "dog", "husky"),
    "AC/DC": ("music", "hard/rock", "AC/DC"),
    "crane": ("birds", "crane"),
    "sky": (),
}
TREE = {("husky", "dog"), ("dog", "animal"), ("AC/DC", "hard/rock"), ("hard/rock", "music"), ("crane", "birds")}


def draw(path, tag, seed):
    pixels = np.random.default_rng(seed).normal(COLOURS[tag], 25, (12, 12, 3))
    Image.fromarray(np.uint8(np.clip(pixels, 0, 255))).save(path)
    return path


def keyworded(folder, n=24):
    """Photos with an XMP file each, with keywords as a person's program writes them, in no field of visterm's notes."""
    for number in range(n):
        tag = list(COLOURS)[number % len(COLOURS)]
        image = draw(folder / f"{number:03}.png", tag, number)
        made = add_tags(SIDECAR, [Mark(tag, GIVEN, path=PLACES[tag])], "x").decode()
        start, stop = made.index("   <visterm:written>"), made.index("  </rdf:Description>")
        (folder / f"{image.name}.xmp").write_text(made[:start] + made[stop:], encoding="utf-8")
    return folder


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def fields(path):
    found = texts_of(Document(path.read_bytes(), str(path)))
    return {name.split()[-1]: texts for name, texts in found.items() if texts}


def export(catalogue, to="xmp", program=None, **how):
    opened = open_source(catalogue, None)
    target = make_target(program or to)
    items = opened.items(Limits(min_confidence=0.5))
    changes = list(export_tags(items, target, run="run1", parents=Parents.of_run(opened.tagger), **how))
    opened._stored.close()
    return changes


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Photos with a person's keywords, a run that learned them, and a catalogue of photos of which some have none."""
    folder = tmp_path_factory.mktemp("places")
    (folder / "photos").mkdir()
    photos = keyworded(folder / "photos", 160)
    tagger = Tagger(encoder="mean_colour", model="ridge", n_jobs=1).fit(photos, "xmp")
    tagger.save(folder / "run")
    for path in sorted(photos.iterdir())[2 * 16 :]:  # 16 are left
        path.unlink()
    for path in sorted(photos.glob("*.xmp"))[8:]:  # these are to be tagged
        path.unlink()
    return folder


@pytest.fixture
def catalogue(library, tmp_path):
    """A catalogue of a copy of the photos."""
    shutil.copytree(library / "photos", tmp_path / "photos")
    made = Catalogue(Tagger.load(library / "run", n_jobs=1))
    made.save(tmp_path / "catalogue")
    opened = Catalogue.load(tmp_path / "catalogue", n_jobs=1)
    opened.index(tmp_path / "photos", "xmp")
    opened.stored.close()
    return tmp_path / "catalogue"


def test_keywords_give_the_tags_and_the_tree_and_fit_learns_both(library):
    run = Tagger.load(library / "run", n_jobs=1)
    assert set(run.tree.words.pairs) == TREE
    assert dict(zip(run.vocabulary.tags, run.vocabulary.counts.tolist(), strict=True)) == dict.fromkeys(
        ["AC/DC", "animal", "birds", "crane", "dog", "hard/rock", "husky", "music", "sky"], 40
    )
    assert run.vocabulary.tags[run.vocabulary.index("music/hard|rock/AC|DC")] == "AC/DC"


def test_places_that_end_alike_are_told_apart_and_names_above_are_not_named_twice(tmp_path):
    for number, marks in enumerate(
        [
            [Mark("crane", GIVEN, path=("birds", "crane")), Mark("birds", GIVEN, fields="dc")],
            [Mark("crane", GIVEN, path=("machines", "crane"))],
            [Mark("crane", GIVEN), Mark("a/b", GIVEN)],
        ]
    ):
        draw(tmp_path / f"{number}.png", "sky", number)
        (tmp_path / f"{number}.png.xmp").write_bytes(add_tags(SIDECAR, marks, "x"))
    found = find_tags("xmp", tmp_path)
    assert [row.tags for row in found.records] == [["birds/crane", "birds"], ["machines/crane"], ["crane", "a/b"]]
    assert set(found.tree) == {("birds/crane", "birds"), ("machines/crane", "machines")}
    assert Corpus.read(tmp_path, "xmp").tree == found.tree
    parents = Parents(tree=TagTree(found.tree))
    (mark,) = ExportItem(tmp_path, ("machines/crane",)).marks_to_write(None, parents)
    assert (mark.tag, mark.path) == ("crane", ("machines", "crane"))


def test_a_new_tag_that_is_a_path_in_the_tree_lies_where_it_says():
    aliases = {"animal/dog": "dog", "animal/dog/husky": "husky"}
    tree = TagTree([("husky", "dog"), ("dog", "animal"), ("a/b", "x")], aliases, grows=True)
    assert tree.with_parents(["Animal/Dog/Pug"]) == ["animal", "dog", "Animal/Dog/Pug"]
    assert (tree.parents("24/7"), tree.parents("/x"), tree.parents("a/b")) == ([], [], ["x"])
    assert Parents(tree=tree).path("animal/new/pug") == ("animal", "new", "pug")
    assert Parents(tree=tree).path("animal/dog/husky") == ("animal", "dog", "husky")
    assert TagTree(tree.pairs, aliases).parents("animal/dog/pug") == []


def test_import_export_import_gives_the_same_and_undo_the_same_bytes(catalogue, tmp_path):
    photos = tmp_path / "photos"
    before, found = contents(photos), find_tags("xmp", photos)
    opened = Catalogue.load(catalogue, n_jobs=1)
    for image in opened.stored.images.all():
        tag = list(COLOURS)[int(image.name[:3]) % len(COLOURS)]
        if not (photos / f"{image.name}.xmp").exists():
            path = "/".join(part.replace("/", "|") for part in PLACES[tag]) or tag
            opened.give(image.id, [path])
            assert opened.image(image.id).tags == [tag]
    opened.stored.close()
    export(catalogue)
    after = contents(photos)
    assert {name: after[name] for name in before if name.endswith("png")}.items() <= before.items()
    again = find_tags("xmp", photos)
    assert set(again.tree) == set(found.tree) == TREE
    told = {row.image: row.tags for row in again.records}
    assert len(told) == 16
    for name, tags in told.items():
        assert tags[0] == list(COLOURS)[int(name[:3]) % len(COLOURS)]
    written = fields(photos / "009.png.xmp")
    assert written["hierarchicalSubject"] == ["music|hard/rock|AC/DC"]
    assert written["TagsList"] == ["music/hard|rock/AC|DC"]
    list(undo_tags([ExportItem(photos / name) for name in before if name.endswith("png")], make_target("xmp")))
    assert contents(photos) == before


@pytest.mark.parametrize(
    ("program", "flat"),
    [(None, ["animal", "dog", "husky"]), *((name, None) for name in PROFILES if PROFILES[name].to == "xmp")],
)
def test_a_photo_of_a_tag_has_one_path_of_it_and_flat_names_as_the_program_expects(program, flat, catalogue, tmp_path):
    export(catalogue, program=program)
    found = fields(tmp_path / "photos" / "008.png.xmp")
    assert found["hierarchicalSubject"] == ["animal|dog|husky"]
    assert found["TagsList"] == ["animal/dog/husky"]
    flat = flat or (["animal", "dog", "husky"] if PROFILES[program].flat else ["husky"])
    assert sorted(found["subject"]) == flat
    keywords = Sidecars().keywords(tmp_path / "photos" / "008.png")
    assert (keywords.people_tags, keywords.paths) == ([], ())


@pytest.mark.parametrize("to", ["csv", "jsonl", "xmp", "txt", "embed"])
def test_what_a_person_said_is_in_the_next_export_before_anything_is_learned(to, catalogue, tmp_path):
    """A new tag that is given, a prediction that is accepted, one that is rejected: and with it what lies under it."""
    if to == "embed" and shutil.which("exiftool") is None:
        pytest.skip("wants exiftool (Debian: libimage-exiftool-perl)")
    opened = Catalogue.load(catalogue, n_jobs=1)
    ids = {image.name: image.id for image in opened.stored.images.all()}
    given, accepted, rejected = "012.png", "010.png", "008.png"

    def written():
        """Of each photo, people's tags and predictions; a text does not tell them apart."""
        if to in ("csv", "jsonl"):
            source = open_source(catalogue, None)
            items = list(source.items(Limits(min_confidence=0.5)))
            source._stored.close()
            (tmp_path / f"tags.{to}").write_text(table_of(items, to), encoding="utf-8")
            people = {row.image: row.tags for row in find_tags(tmp_path / f"tags.{to}", tmp_path / "photos").records}
            both = {item.name: [mark.tag for mark in item.marks_to_write(None, Parents())] for item in items}
            return {name: (people.get(name, []), sorted(set(both[name]) - set(people.get(name, [])))) for name in both}
        export(catalogue, to)
        found = {}
        for name in (given, accepted, rejected):
            path = tmp_path / "photos" / name
            keywords = Sidecars().keywords(path)
            tags = path.with_suffix(".txt").read_text().splitlines() if to == "txt" else keywords.tags
            found[name] = (keywords.people_tags, [tag for tag in tags if tag not in keywords.people_tags])
        return found

    before = written()
    assert "husky" in before[rejected][1]
    opened.give(ids[given], ["Zoë"])
    opened.judge(ids[accepted], "crane", 1)
    opened.judge(ids[rejected], "dog", -1)
    opened.stored.close()
    after = written()
    assert "Zoë" in (after[given][0] or after[given][1])
    if to != "txt":
        assert ("crane" in before[accepted][0], "crane" in after[accepted][0]) == (False, True)
    assert {"dog", "husky"}.isdisjoint(after[rejected][1])
    assert "animal" in after[rejected][1]


def test_photoprism_gets_the_tags_above_a_label_as_its_categories(library):
    tree = Tagger.load(library / "run", n_jobs=1).tree
    labels = merge_labels([[Tag("husky", 1.0), Tag("sky", 0.5)]], tree)
    assert [(label["name"], label["categories"]) for label in labels] == [("husky", ["dog", "animal"]), ("sky", [])]


SURE = PushSettings(precision=0.6)
IMMICH = {"red": "colours/warm/red", "green": "colours/green", "blue": "Colours/blue", "grey": "AC|DC"}


@pytest.fixture(scope="module")
def in_immich(tmp_path_factory):
    """A library whose people have their tags under others, and the catalogue that was made of it."""
    folder, library = tmp_path_factory.mktemp("nested") / "catalogue", RememberedLibrary()
    for number in range(144):
        tags = [IMMICH[colour_of(number)]] if number < N_TAGGED else []
        library.put(f"p{number:03d}", preview=picture(colour_of(number), number), tags=tags)
    connected(folder, library).stored.close()
    return folder, library


@pytest.mark.parametrize("parent", ["visterm", None])
def test_sync_reads_and_writes_peoples_paths_in_immich(parent, in_immich, tmp_path):
    shutil.copytree(in_immich[0], tmp_path / "catalogue")
    library = RememberedLibrary()
    for photo, there in in_immich[1].photos.items():
        library.put(photo, **{name: getattr(there, name) for name in ("preview", "tags")})
    library._clock = in_immich[1]._clock
    catalogue = Catalogue.load(tmp_path / "catalogue", n_jobs=1)
    assert set(catalogue.tagger.tree.words.pairs) == {
        ("warm", "colours"), ("red", "warm"), ("green", "colours"), ("blue", "colours")
    }  # fmt: skip
    before = library.state()
    sync(catalogue, library, PushSettings(parent, SURE.precision))
    new = {tag for photo, tags in library.state().items() for tag in tags if tag not in before[photo]}
    expected = set(IMMICH.values()) if parent is None else {
        "visterm/colours/warm/red", "visterm/colours/green", "visterm/colours/blue", "visterm/AC|DC"}  # fmt: skip
    assert expected - new == set()
    assert not new & {"red", "warm", "colours", "visterm/red", "visterm/colours/warm", "AC/DC"}
    assert all(before[photo] == tags for photo, tags in library.state().items() if int(photo[1:]) < N_TAGGED)
    library.put("p000", tags=["colours/warm/rust"])  # a new one, there
    sync(catalogue, library, PushSettings(parent, SURE.precision))
    [image] = [one for one in catalogue.stored.images.all() if one.name == "p000.jpg"]
    assert catalogue.image(image.id).tags == ["colours/warm/rust"]
    assert set(catalogue.tagger.tree.words.above("colours/warm/rust")) == {"warm", "colours"}
    undo(catalogue, library)
    assert library.state() == before | {"p000": ["colours/warm/rust"]}
