"""The keywords of an XMP text: the union of all fields that programs use, and notes on the tags that visterm wrote."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from visterm.core.vocabulary import clean_tag, tag_key
from visterm.data.program_tags import program_names, program_path
from visterm.data.xmp.tree import Document, Element, qname

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
XMP_META = "adobe:ns:meta/"
DC = "http://purl.org/dc/elements/1.1/"
LIGHTROOM = "http://ns.adobe.com/lightroom/1.0/"
DIGIKAM = "http://www.digikam.org/ns/1.0/"
VISTERM = "urn:visterm:xmp:1.0/"  # Namespace of visterm's notes on the tags that it wrote
DESCRIPTION = qname(RDF, "Description")
ABOUT = qname(RDF, "about")
ITEM = qname(RDF, "li")
VALUE = qname(RDF, "value")
CONTAINERS = tuple(qname(RDF, kind) for kind in ("Bag", "Seq", "Alt"))

SUBJECT = qname(DC, "subject")
HIERARCHICAL = qname(LIGHTROOM, "hierarchicalSubject")
TAGS_LIST = qname(DIGIKAM, "TagsList")
WRITTEN = qname(VISTERM, "written")
TAKEN_OFF = qname(VISTERM, "takenOff")

# Properties in which programs store keywords -> separator between parent and child
FIELDS: dict[str, str | None] = {
    SUBJECT: None,
    HIERARCHICAL: "|",
    TAGS_LIST: "/",
    qname("http://ns.microsoft.com/photo/1.0", "LastKeywordXMP"): "/",
    qname("http://ns.microsoft.com/photo/1.0/", "LastKeywordXMP"): "/",
    qname("http://ns.iview-multimedia.com/mediapro/1.0/", "CatalogSets"): "|",
    qname("http://ns.acdsee.com/iptc/1.0/", "keywords"): "|",
}

# The fields with paths. If two fields have different paths for a tag, the first counts, as in digiKam and Immich.
PATH_FIELDS = (TAGS_LIST, *(name for name in FIELDS if name not in (SUBJECT, TAGS_LIST)))

# Prefix -> field that visterm writes. It writes all three fields, as many programs read only one of them.
OWN_FIELDS = {"dc": SUBJECT, "lr": HIERARCHICAL, "digiKam": TAGS_LIST}

PLACE = (
    qname("http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/", "Location"),
    *(qname("http://ns.adobe.com/photoshop/1.0/", name) for name in ("City", "State", "Country")),
)
"""Properties that name the place of a photo, the smallest first."""

IPTC = "IPTC"  # In notes on tags that were also added to an image's IPTC keywords, like the keys of `OWN_FIELDS`

GIVEN, PREDICTED = "given", "predicted"  # Source of a tag that visterm wrote: a person, or a run
COPIED = "copied"  # Source of a tag that another program wrote into one field, and visterm copied to the others


class Mark(NamedTuple):
    """The note of visterm on a tag that it wrote."""

    tag: str
    # Whether a person gave the tag, in the catalogue or a tag file ("given"), or a run predicted it ("predicted")
    source: str
    confidence: float | None = None  # Confidence of a prediction, if the run is calibrated
    run: str | None = None  # Fingerprint of the run that predicted it
    path: tuple[str, ...] = ()  # The path of the tag as it was written, topmost first; empty if the tag has no parent
    fields: str | None = None  # Fields that visterm wrote it to (``dc lr digiKam``); None: not yet, or not noted

    @property
    def path_text(self) -> str | None:
        """The path as it is stored: ``animal|dog``, with a backslash before a ``|`` in a name; None without a path."""
        return "|".join(re.sub(r"([|\\])", r"\\\1", part) for part in self.path) or None

    def properties(self) -> list[str]:
        """Return the properties into which visterm wrote the tag, according to the note."""
        return [OWN_FIELDS[prefix] for prefix in (self.fields or "").split() if prefix in OWN_FIELDS]

    @property
    def is_in_iptc(self) -> bool:
        """Whether visterm also added the tag to the image's IPTC keywords."""
        return IPTC in (self.fields or "").split()


class TakenOff(NamedTuple):
    """The note of visterm on an entry of another program that it removed because a person rejected the tag."""

    tag: str
    field: str  # One of `FIELDS`, or `IPTC`
    position: int  # Among the entries of the field
    text: str  # The entry as XML, with the white space before it; for IPTC the keyword


class Keywords(NamedTuple):
    """The keywords of an image."""

    tags: list[str]  # Tags of all fields without repetitions; for a path, its last part
    marks: list[Mark]  # Notes on tags that visterm wrote; tags missing from `tags` were removed by a person
    copies: tuple[Mark, ...] = ()  # Notes on other programs' tags that visterm copied to more fields
    # Paths of people's tags, topmost first, as in (animal, dog). A tag without a path is at the top, or only a parent
    # of other tags; a tag may have several paths.
    paths: tuple[tuple[str, ...], ...] = ()
    programs: frozenset[str] = frozenset()  # Keys of names in programs' own paths (see `program_names`)
    placed: frozenset[str] = frozenset()  # Keys of names in people's paths, which are people's tags
    cut: frozenset[str] = frozenset()  # Tags from IPTC that may have been cut short

    @property
    def people_tags(self) -> list[str]:
        """The tags that were not predicted by a run."""
        predicted_keys = {tag_key(mark.tag) for mark in self.marks if mark.source == PREDICTED}
        return [tag for tag in self.tags if tag_key(tag) not in predicted_keys]


def read_keywords(content: bytes, label: str) -> Keywords:
    """Read the keywords of an XMP sidecar or packet; messages call it `label`.

    A text without metadata has no keywords. Raises DataError if it cannot be parsed (see `Document`).
    """
    return keywords_of(Document(content, label, is_read_only=True))


def keywords_of(document: Document) -> Keywords:
    """Return the keywords of a parsed XMP text.

    A tag that visterm wrote counts as removed unless it is still in both dc:subject and digiKam:TagsList, since a
    program may know only one of these fields. lr:hierarchicalSubject is not checked, as some programs omit tags without
    a parent from it. Tags that programs wrote for their own use, and the names in their paths, are left out.
    """
    texts_of_field = texts_of(document)
    note_items = (item for element in properties(document, WRITTEN) for item in items(element))
    notes = [mark for item in note_items if (mark := mark_of(item)) is not None]
    subjects = {folded(text): text for text in texts_of_field[SUBJECT]}
    spellings: dict[str, str] = {}  # key -> first spelling, from fields into which visterm did not copy the tag
    fields_of_tag: dict[str, set[str]] = {}
    path_keys: set[str] = set()
    copied_entries = {(name, folded(mark.tag)) for mark in notes if mark.source == COPIED for name in mark.properties()}
    for name, texts in texts_of_field.items():
        for text in texts:
            if program_path(text):
                continue
            tag = text if name == SUBJECT else tag_of(text, name, subjects)
            key = tag_key(tag)
            if name != SUBJECT:
                path_keys.update((key, *map(tag_key, parts_in(text, name))))
            if key:
                fields_of_tag.setdefault(folded(tag), set()).add(name)
                if (name, folded(tag)) not in copied_entries:
                    spellings.setdefault(key, clean_tag(tag))

    removed_keys = {
        tag_key(mark.tag)
        for mark in notes
        if not fields_of_tag.get(folded(mark.tag), set()).issuperset({*mark.properties()} - {HIERARCHICAL})
    }
    program_keys = program_names(text for texts in texts_of_field.values() for text in texts)
    tags = [tag for key, tag in spellings.items() if key not in removed_keys | (program_keys - path_keys)]
    marks = [mark for mark in notes if mark.source != COPIED]
    copies = tuple(mark for mark in notes if mark.source == COPIED)
    paths = _paths(texts_of_field, notes, subjects, set(map(folded, Keywords(tags, marks).people_tags)))
    return Keywords(tags, marks, copies, paths, frozenset(program_keys), frozenset(path_keys))


def _paths(
    texts_of_field: Mapping[str, list[str]], notes: Iterable[Mark], subjects: Mapping[str, str], tags: set[str]
) -> tuple[tuple[str, ...], ...]:
    """Return the paths of the tags whose keys (`folded`) are in `tags`.

    Names are spelled as in dc:subject, or else as in visterm's notes, or else as in the first field.
    """
    spellings = dict(subjects) | {
        folded(part): part for mark in notes for part in mark.path if folded(part) not in subjects
    }

    def paths_in_field(name: str) -> Iterator[tuple[str, ...]]:
        for text in texts_of_field[name]:
            parts = [] if folded(text) in subjects else parts_in(text, name)
            if len(parts) > 1 and folded(parts[-1]) in tags:
                yield tuple(clean_tag(spellings.setdefault(folded(part), part)) for part in parts)

    return first_paths(map(paths_in_field, PATH_FIELDS))


def first_paths(groups: Iterable[Iterable[tuple[str, ...]]]) -> tuple[tuple[str, ...], ...]:
    """Return the paths of tags; if several groups have paths to a tag, only those of the first group are kept."""
    paths_of_tag: dict[str, list[tuple[str, ...]]] = {}
    for group in groups:
        paths_to: dict[str, list[tuple[str, ...]]] = {}
        for path in dict.fromkeys(group):
            paths_to.setdefault(folded(path[-1]), []).append(path)
        paths_of_tag |= {key: paths for key, paths in paths_to.items() if key not in paths_of_tag}
    return tuple(path for paths in paths_of_tag.values() for path in paths)


def texts_of(document: Document) -> dict[str, list[str]]:
    """Return the texts in each field of `FIELDS`."""
    texts: dict[str, list[str]] = {name: [] for name in FIELDS}
    for node in descriptions(document):
        for name, text in node.attributes.items():
            if name in texts:
                texts[name].append(text)
        for element in node.children:
            if element.name in texts:
                texts[element.name] += map(value, items(element)) if container(element) is not None else [element.text]
    return texts


def tag_of(text: str, name: str, subjects: Mapping[str, str]) -> str:
    """Return the tag of an entry in field `name`; `subjects` has the tags of dc:subject by `folded`, for the spelling.

    The tag is the last part of a path, unless the whole text is a tag; it is empty for a program's own path.
    """
    if folded(text) in subjects:
        return subjects[folded(text)]
    last_part = parts_in(text, name)[-1:]
    return subjects.get(folded(last_part[0]), last_part[0]) if last_part else ""


def folded(tag: str) -> str:
    """Return the key of a tag for comparing fields with paths, in which names cannot contain the separator."""
    return tag_key(tag).replace("|", "/")


def path_in(mark: Mark, name: str) -> str:
    """Return a tag with its parents as it is written in the field `name`.

    A separator inside a tag is replaced: ``AC/DC`` becomes ``AC|DC`` in paths with ``/``, as in Immich.
    """
    if (separator := FIELDS[name]) is None:
        return mark.tag
    parts = mark.path or (mark.tag,)
    return separator.join(part.replace(separator, "|" if separator == "/" else "/") for part in parts)


def parts_in(text: str, name: str) -> list[str]:
    """Split a path in the field `name` into tags, the topmost first; empty for a program's own path.

    In paths with ``/``, a ``|`` is read as a ``/`` inside a name, as `path_in` and Immich write it.
    """
    separator = FIELDS[name]
    parts = [part.replace("|", "/") if separator == "/" else part for part in text.split(separator) if part.strip()]
    return [] if program_path(text) else parts


def descriptions(document: Document) -> Iterator[Element]:
    """Yield the rdf:Description elements, whose children and attributes are the properties of the image."""
    for element in document.root.walk():
        if element.name == DESCRIPTION and element.parent is not None and element.parent.name == qname(RDF, "RDF"):
            yield element


def properties(document: Document, name: str) -> list[Element]:
    """Return the elements of a property."""
    return [child for node in descriptions(document) for child in node.children if child.name == name]


def container(element: Element) -> Element | None:
    """Return the list element of a property, or None."""
    return next((child for child in element.children if child.name in CONTAINERS), None)


def place_in(document: Document) -> list[str]:
    """Return the names of the place where the photo was taken, the smallest first."""
    values = {name: text for node in descriptions(document) for name, text in fields(node).items()}
    return [values[name] for name in PLACE if values.get(name)]


def items(element: Element) -> list[Element]:
    """Return the entries of a property's list."""
    list_element = container(element)
    return [] if list_element is None else [child for child in list_element.children if child.name == ITEM]


def value(item: Element) -> str:
    """Return the text of an entry, with or without qualifiers."""
    return fields(item).get(VALUE, item.text)


def fields(item: Element) -> dict[str, str]:
    """Return the fields of a structure, in any of the notations of RDF."""
    nodes = [item, *(child for child in item.children if child.name == DESCRIPTION)]
    values: dict[str, str] = {}
    for node in nodes:
        values |= node.attributes | {child.name: child.text for child in node.children if child.name != DESCRIPTION}
    return values


def taken_off_in(document: Document) -> list[TakenOff]:
    """Return the notes on entries that were removed, in the order of their removal; invalid notes are left out."""
    notes = []
    for values in (fields(item) for element in properties(document, TAKEN_OFF) for item in items(element)):
        tag, field, position, text = (values.get(qname(VISTERM, name), "") for name in TakenOff._fields)
        if tag and field in {IPTC, *FIELDS} and re.fullmatch(r"\d{1,6}", position):
            notes.append(TakenOff(tag, field, int(position), text))
    return notes


def mark_of(item: Element) -> Mark | None:
    """Parse a note of visterm; None if the entry is not a valid note."""
    values = fields(item)
    texts = {name: clean_tag(values.get(qname(VISTERM, name), "")) for name in Mark._fields}
    if not texts["tag"]:
        return None
    try:
        confidence = float(texts["confidence"])
    except ValueError:  # the note has no confidence
        confidence = None
    source = texts["source"] if texts["source"] in (GIVEN, COPIED) else PREDICTED
    parts = re.findall(r"(?:\\[|\\]|[^|])+", texts["path"])
    path = tuple(clean_tag(re.sub(r"\\([|\\])", r"\1", part)) for part in parts)
    return Mark(texts["tag"], source, confidence, texts["run"] or None, path, texts["fields"] or None)
