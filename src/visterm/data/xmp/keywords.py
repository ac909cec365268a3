"""The keywords of an XMP text: the union of all fields that programs use, and which of them visterm wrote."""

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
VISTERM = "urn:visterm:xmp:1.0/"  # Namespace of what visterm notes of the tags that it wrote
DESCRIPTION = qname(RDF, "Description")
ABOUT = qname(RDF, "about")
ITEM = qname(RDF, "li")
VALUE = qname(RDF, "value")
CONTAINERS = tuple(qname(RDF, kind) for kind in ("Bag", "Seq", "Alt"))

SUBJECT = qname(DC, "subject")
HIERARCHICAL = qname(LIGHTROOM, "hierarchicalSubject")
TAGS_LIST = qname(DIGIKAM, "TagsList")
WRITTEN = qname(VISTERM, "written")

# The properties in which programs keep keywords, and what stands between a parent and its child in them
FIELDS: dict[str, str | None] = {
    SUBJECT: None,
    HIERARCHICAL: "|",
    TAGS_LIST: "/",
    qname("http://ns.microsoft.com/photo/1.0", "LastKeywordXMP"): "/",
    qname("http://ns.microsoft.com/photo/1.0/", "LastKeywordXMP"): "/",
    qname("http://ns.iview-multimedia.com/mediapro/1.0/", "CatalogSets"): "|",
}

# The fields with paths. Where two put a tag in different places, the first counts, as in digiKam and Immich.
PLACES = (TAGS_LIST, *(name for name in FIELDS if name not in (SUBJECT, TAGS_LIST)))

# The fields that visterm writes, always all of them, as programs read one and not the others
OWN_FIELDS = {"dc": SUBJECT, "lr": HIERARCHICAL, "digiKam": TAGS_LIST}

IPTC = "IPTC"  # Stands beside those, in notes of tags that were put into an image's IPTC keywords, too

GIVEN, PREDICTED = "given", "predicted"  # Where a tag that visterm wrote is from: people, or a run
COPIED = "copied"  # A tag that another program wrote into one field, and visterm into the others


class Mark(NamedTuple):
    """What visterm notes of a tag that it wrote."""

    tag: str
    # Whether a person gave the tag, in the catalogue or a tag file ("given"), or a run predicted it ("predicted")
    source: str
    confidence: float | None = None  # Of a prediction, where the run has a calibration
    run: str | None = None  # Fingerprint of the run that predicted it
    path: tuple[str, ...] = ()  # The tag after those above it, as it was written; empty of one that has none above it
    fields: str | None = None  # Where visterm wrote it (``dc lr digiKam``); None: nowhere yet, or no note says it

    @property
    def path_text(self) -> str | None:
        """The path as it is noted: ``animal|dog``, with a backslash before a ``|`` in a name; None without a path."""
        return "|".join(re.sub(r"([|\\])", r"\\\1", part) for part in self.path) or None

    def lies_in(self) -> list[str]:
        """Return the properties in which visterm wrote the tag, as far as that was noted."""
        return [OWN_FIELDS[prefix] for prefix in (self.fields or "").split() if prefix in OWN_FIELDS]

    @property
    def is_in_iptc(self) -> bool:
        """Whether visterm put the tag into the image's IPTC keywords, too."""
        return IPTC in (self.fields or "").split()


class Keywords(NamedTuple):
    """The keywords of an image."""

    tags: list[str]  # Of all fields, each once; of a path its last part
    marks: list[Mark]  # Of the tags that visterm wrote; a person has removed those that are not among `tags` any more
    copies: tuple[Mark, ...] = ()  # Of other programs' tags that visterm wrote into more fields
    # Where tags of people lie in their tree: each a tag after those above it, as in (animal, dog). A tag without one
    # lies at the top, or above others only; one may have several.
    paths: tuple[tuple[str, ...], ...] = ()
    programs: frozenset[str] = frozenset()  # Keys of names in programs' own paths, see `program_names`
    placed: frozenset[str] = frozenset()  # Keys of names in people's fields of paths, which are theirs nevertheless
    cut: frozenset[str] = frozenset()  # Tags as IPTC has them, which may have been cut there

    @property
    def of_people(self) -> list[str]:
        """The tags without those that a run predicted."""
        predicted = {tag_key(mark.tag) for mark in self.marks if mark.source == PREDICTED}
        return [tag for tag in self.tags if tag_key(tag) not in predicted]


def read_keywords(content: bytes, where: str) -> Keywords:
    """Read the keywords of an XMP text, called `where` in messages.

    It is a sidecar or a packet; one without metadata has no keywords. Raises DataError if it cannot be understood, see
    `Document`.
    """
    return keywords_of(Document(content, where, is_read_only=True))


def keywords_of(document: Document) -> Keywords:
    """Return the keywords of a text that was read.

    A tag that visterm wrote into several fields must still be in dc:subject and digiKam:TagsList: a program that knows
    one of them only takes it out there alone. Paths don't count, as some programs leave flat tags out of them. What
    programs wrote for themselves is left out, in dc:subject if only their paths explain it.
    """
    texts_of_field = texts_of(document)
    lists = (element for node in descriptions(document) for element in node.children if element.name == WRITTEN)
    notes = [mark for element in lists for item in items(element) if (mark := mark_of(item)) is not None]
    subjects = {folded(text): text for text in texts_of_field[SUBJECT]}
    spelled: dict[str, str] = {}  # Of each tag its first spelling, of fields where visterm did not copy it
    lies_in: dict[str, set[str]] = {}
    placed: set[str] = set()
    copied = {(name, folded(mark.tag)) for mark in notes if mark.source == COPIED for name in mark.lies_in()}
    for name, texts in texts_of_field.items():
        for text in texts:
            if program_path(text):
                continue
            tag = text if name == SUBJECT else tag_of(text, name, subjects)
            key = tag_key(tag)
            if name != SUBJECT:
                placed.update((key, *map(tag_key, parts_in(text, name))))
            if key:
                lies_in.setdefault(folded(tag), set()).add(name)
                if (name, folded(tag)) not in copied:
                    spelled.setdefault(key, clean_tag(tag))

    removed = {
        tag_key(mark.tag)
        for mark in notes
        if not lies_in.get(folded(mark.tag), set()).issuperset({*mark.lies_in()} - {HIERARCHICAL})
    }
    programs = program_names(text for texts in texts_of_field.values() for text in texts)
    tags = [tag for key, tag in spelled.items() if key not in removed | (programs - placed)]
    marks = [mark for mark in notes if mark.source != COPIED]
    copies = tuple(mark for mark in notes if mark.source == COPIED)
    of_people = Keywords(tags, marks).of_people
    paths = _paths(texts_of_field, notes, subjects, set(map(folded, of_people)))
    return Keywords(tags, marks, copies, paths, frozenset(programs), frozenset(placed))


def _paths(
    texts_of_field: Mapping[str, list[str]], notes: Iterable[Mark], subjects: Mapping[str, str], tags: set[str]
) -> tuple[tuple[str, ...], ...]:
    """Return the places of some tags, by `folded`.

    Names are spelled as dc:subject, else as notes of visterm, else as the first field spells them.
    """
    spelled = dict(subjects) | {
        folded(part): part for mark in notes for part in mark.path if folded(part) not in subjects
    }

    def inside(name: str) -> Iterator[tuple[str, ...]]:
        for text in texts_of_field[name]:
            parts = [] if folded(text) in subjects else parts_in(text, name)
            if len(parts) > 1 and folded(parts[-1]) in tags:
                yield tuple(clean_tag(spelled.setdefault(folded(part), part)) for part in parts)

    return first_places(map(inside, PLACES))


def first_places(groups: Iterable[Iterable[tuple[str, ...]]]) -> tuple[tuple[str, ...], ...]:
    """Return the places of tags: of each those of the first group, of paths, that has one."""
    chosen: dict[str, list[tuple[str, ...]]] = {}
    for group in groups:
        paths_to: dict[str, list[tuple[str, ...]]] = {}
        for path in dict.fromkeys(group):
            paths_to.setdefault(folded(path[-1]), []).append(path)
        chosen |= {key: places for key, places in paths_to.items() if key not in chosen}
    return tuple(path for places in chosen.values() for path in places)


def texts_of(document: Document) -> dict[str, list[str]]:
    """Return the texts in each field of keywords."""
    texts: dict[str, list[str]] = {name: [] for name in FIELDS}
    for node in descriptions(document):
        for name, text in node.attributes.items():
            if name in texts:
                texts[name].append(text)
        for element in node.children:
            if element.name in texts:
                is_list = container(element) is not None
                texts[element.name] += map(value, items(element)) if is_list else [element.text]
    return texts


def tag_of(text: str, name: str, subjects: Mapping[str, str]) -> str:
    """Return the tag that an entry of a field means, as `subjects`, the tags of dc:subject by `folded`, spells it.

    That is the last part of a path, unless the whole text is a tag; nothing of a program's own.
    """
    if folded(text) in subjects:
        return subjects[folded(text)]
    last = parts_in(text, name)[-1:]
    return subjects.get(folded(last[0]), last[0]) if last else ""


def folded(tag: str) -> str:
    """Return a tag as fields with paths are compared: what parts their paths cannot stand in them, see `path_in`."""
    return tag_key(tag).replace("|", "/")


def path_in(mark: Mark, name: str) -> str:
    """Return a tag with its parents as a field has it.

    What parts the tags of a path cannot stand in a tag: ``AC/DC`` is ``AC|DC`` among paths with ``/``, as in Immich.
    """
    if (separator := FIELDS[name]) is None:
        return mark.tag
    parts = mark.path or (mark.tag,)
    return separator.join(part.replace(separator, "|" if separator == "/" else "/") for part in parts)


def parts_in(text: str, name: str) -> list[str]:
    """Return the tags of a path as a field has it, the topmost first; nothing of a program's own.

    Among paths with ``/``, a ``|`` stands for a ``/`` in a name, as `path_in` writes it, and Immich.
    """
    separator = FIELDS[name]
    parts = [part.replace("|", "/") if separator == "/" else part for part in text.split(separator) if part.strip()]
    return [] if program_path(text) else parts


def descriptions(document: Document) -> Iterator[Element]:
    """Yield the elements whose children and attributes are the properties of the image."""
    for element in document.root.every():
        if element.name == DESCRIPTION and element.parent is not None and element.parent.name == qname(RDF, "RDF"):
            yield element


def container(element: Element) -> Element | None:
    """Return the list inside a property, or None."""
    return next((child for child in element.children if child.name in CONTAINERS), None)


def items(element: Element) -> list[Element]:
    """Return the entries of the list inside a property."""
    inside = container(element)
    return [] if inside is None else [child for child in inside.children if child.name == ITEM]


def value(item: Element) -> str:
    """Return the text of an entry, with or without qualifiers."""
    return fields(item).get(VALUE, item.text)


def fields(item: Element) -> dict[str, str]:
    """Return the fields of a structure, in any of the ways in which RDF writes one."""
    nodes = [item, *(child for child in item.children if child.name == DESCRIPTION)]
    values: dict[str, str] = {}
    for node in nodes:
        values |= node.attributes | {child.name: child.text for child in node.children if child.name != DESCRIPTION}
    return values


def mark_of(item: Element) -> Mark | None:
    """Read a note that visterm made; None if it is not one, or no longer."""
    values = fields(item)
    texts = {name: clean_tag(values.get(qname(VISTERM, name), "")) for name in Mark._fields}
    if not texts["tag"]:
        return None
    try:
        confidence = float(texts["confidence"])
    except ValueError:  # none was written
        confidence = None
    source = texts["source"] if texts["source"] in (GIVEN, COPIED) else PREDICTED
    parts = re.findall(r"(?:\\[|\\]|[^|])+", texts["path"])
    path = tuple(clean_tag(re.sub(r"\\([|\\])", r"\1", part)) for part in parts)
    return Mark(texts["tag"], source, confidence, texts["run"] or None, path, texts["fields"] or None)
