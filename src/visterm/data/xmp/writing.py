"""Adding tags to an XMP text and removing them, without changing any other byte of the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from visterm.core.errors import DataError
from visterm.core.vocabulary import tag_key
from visterm.data.xmp.keywords import (
    ABOUT,
    COPIED,
    DC,
    DIGIKAM,
    FIELDS,
    HIERARCHICAL,
    IPTC,
    LIGHTROOM,
    OWN_FIELDS,
    RDF,
    SUBJECT,
    TAGS_LIST,
    TAKEN_OFF,
    VISTERM,
    WRITTEN,
    XMP_META,
    Keywords,
    Mark,
    TakenOff,
    container,
    descriptions,
    folded,
    items,
    keywords_of,
    mark_of,
    parts_in,
    path_in,
    properties,
    tag_of,
    taken_off_in,
    texts_of,
    value,
)
from visterm.data.xmp.tree import Document, Edit, Element, qname

_EMPTY_XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="visterm">\n'
    ' <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">\n'
    " </rdf:RDF>\n"
    "</x:xmpmeta>\n"
)
SIDECAR = f'<?xml version="1.0" encoding="UTF-8"?>\n{_EMPTY_XMP}'.encode()  # Content of a new file without tags
IN_EMPTY_FILE = SIDECAR + b"\n"  # Of a file that had 0 bytes: an undo empties it again
_BEGIN, _END = '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>\n', '<?xpacket end="w"?>'
PACKET = f"{_BEGIN}{_EMPTY_XMP}{_END}".encode()  # New metadata for an image

# Prefix, namespace and local name of each property
_NAMES = {
    SUBJECT: ("dc", DC, "subject"),
    HIERARCHICAL: ("lr", LIGHTROOM, "hierarchicalSubject"),
    TAGS_LIST: ("digiKam", DIGIKAM, "TagsList"),
    WRITTEN: ("visterm", VISTERM, "written"),
    TAKEN_OFF: ("visterm", VISTERM, "takenOff"),
}

_LIST_TYPE = {name: "Seq" if name == TAGS_LIST else "Bag" for name in _NAMES}  # digiKam writes an ordered list

_PACKET_FORM = re.compile(rb"""<\?xpacket .*<\?xpacket end=["'][rw]["']\s*\?>""", re.DOTALL)
_PACKET_OR_XML_LINE = re.compile(rb"<\?x(?:packet|ml)\s.*?\?>\s*", re.DOTALL)
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def add_tags(content: bytes, marks: Sequence[Mark], label: str, *, iptc: Collection[str] = ()) -> bytes:
    """Add missing tags to all of `OWN_FIELDS`, each with a note that visterm wrote it.

    A mark with `fields` is added to these fields only, so a parent tag gets no path of its own. `content` is a sidecar
    or packet (`SIDECAR` or `PACKET` for a new one), called `label` in messages; it is returned unchanged if all tags
    are already in it. Existing tags keep their source; but if one of the tags is only in some of the fields, all such
    tags are copied to the other fields, with a note. A predicted tag that is now given gets a new note. `iptc` are the
    tags that are also added to the image's IPTC keywords, for the notes. Raises DataError if `content` is not XMP,
    keywords are not in a list, or a tag has a character that XML cannot contain.
    """
    for mark in marks:
        check_writable(mark)
    document = Document(content, label)
    keywords = keywords_of(document)
    requested = {tag_key(mark.tag): mark for mark in marks}
    keys, old_marks = {tag_key(tag) for tag in keywords.tags}, {tag_key(mark.tag): mark for mark in keywords.marks}
    texts = texts_of(document)
    field_tags = _fields(texts)
    iptc_keys = set(map(tag_key, iptc))
    old_copies = {tag_key(mark.tag) for mark in keywords.copies}
    new_marks = [mark for key, mark in requested.items() if key not in keys.union(old_marks, old_copies)]
    programs = keywords.programs & {tag_key(text) for text in texts[SUBJECT]}
    new_marks = [m._replace(fields=_prefixes(m, programs, iptc=tag_key(m.tag) in iptc_keys)) for m in new_marks]
    renewed_marks = []

    for key, mark in old_marks.items():
        source = requested[key].source if key in requested else mark.source
        fields = mark.fields
        if key in keys and (key in requested or key in iptc_keys):  # otherwise a person removed it
            new_fields = _prefixes(requested.get(key, mark), programs, iptc=key in iptc_keys)
            names = f"{fields or ''} {new_fields}".split()
            fields = " ".join(prefix for prefix in (*OWN_FIELDS, IPTC) if prefix in names)
        renewed_marks.append(mark._replace(source=source, fields=fields))

    copies = _copies(keywords, requested, field_tags, iptc_keys)
    renewed_marks = [mark for mark in renewed_marks if mark != old_marks[tag_key(mark.tag)]]
    if not (new_marks or renewed_marks or any(tag_key(mark.tag) in {*requested, *iptc_keys} for mark in copies)):
        return content
    if replaced_keys := {tag_key(mark.tag) for mark in (*renewed_marks, *copies)} & {*old_marks, *old_copies}:
        document = Document(_without_tags(document, replaced_keys, only_notes=True), label)
    entries: dict[str, list[Mark]] = {}
    for name in OWN_FIELDS.values():
        missing_marks = [mark for mark in (*copies, *renewed_marks) if folded(mark.tag) not in field_tags[name][0]]
        entries[name] = [mark for mark in (*missing_marks, *new_marks) if name in mark.properties()]
    entries[WRITTEN] = [*copies, *renewed_marks, *new_marks]
    entries = {name: field_marks for name, field_marks in entries.items() if field_marks}
    return document.edited(_insertions(document, entries, label))


def remove_tags(content: bytes, tags: Collection[str], label: str) -> bytes | None:
    """Remove tags and visterm's notes on them from all fields of keywords.

    With the last tag that visterm wrote, its copies of other programs' tags and the elements left empty are removed
    too, so the text is the same as before tags were added. Returns None if the text had only tags of visterm. Raises
    DataError if it cannot be parsed.
    """
    document = Document(content, label)
    keywords, keys = keywords_of(document), {tag_key(tag) for tag in tags}
    copies = keywords.copies if all(tag_key(mark.tag) in keys for mark in keywords.marks) else ()
    content = _without_tags(document, keys, copies=copies)
    if content == IN_EMPTY_FILE:
        return b""
    return None if content.replace(b'end="r"', b'end="w"') in (SIDECAR, PACKET) else content


def take_off(content: bytes, tags: Collection[str], label: str, *, iptc: Collection[str] = ()) -> bytes:
    """Remove other programs' entries of tags from all lists of keywords, with a note on each, for `put_back`.

    visterm's copies of the tags are removed first. `iptc` are the keywords that are also removed from the image's IPTC,
    for the notes. Lists that are empty afterwards stay. Raises DataError if `content` is not XMP.
    """
    document, keys = Document(content, label), {tag_key(tag) for tag in tags}
    copies = [mark for mark in keywords_of(document).copies if tag_key(mark.tag) in keys]
    if copies:
        document = Document(_without_tags(document, (), copies=copies), label)
    folded_keys, subjects = set(map(folded, keys)), {folded(text): text for text in texts_of(document)[SUBJECT]}
    notes, edits = [TakenOff(tag, IPTC, 0, tag) for tag in iptc], []
    for name in FIELDS:
        entries = [item for element in properties(document, name) for item in items(element)]
        for position, item in reversed([*enumerate(entries)]):
            tag = value(item) if name == SUBJECT else tag_of(value(item), name, subjects)
            if (tag_key(tag) in keys) if name == SUBJECT else folded(tag) in folded_keys:
                edits.append(_deletion(document, item))
                text = document.text[edits[-1].start : edits[-1].end].decode()
                notes.append(TakenOff(tag, name, position, text))
    if not notes:
        return content
    document = Document(document.edited(edits), label)
    return document.edited(_insertions(document, {TAKEN_OFF: notes}, label))


def put_back(content: bytes, label: str) -> tuple[bytes, list[TakenOff]]:
    """Add all entries again that `take_off` removed, where they were, and remove the notes; return them, too.

    An entry whose list another program has removed since comes into a new list. Raises DataError if `content` is not
    XMP, or a note is damaged.
    """
    document = Document(content, label)
    notes = taken_off_in(document)
    for note in reversed(notes):
        document = Document(document.edited([_put_back_edit(document, note, label)]), label)
    return (_without_entries(document, lambda name, _: name == TAKEN_OFF) if notes else content), notes


def as_packet(content: bytes, label: str) -> bytes:
    """Convert an image's XMP to a UTF-8 packet, the only form that exiftool writes.

    Some programs leave out the packet's header and trailer, use another encoding, or add padding. Raises DataError if
    the XMP cannot be parsed.
    """
    text = Document(content, label, is_read_only=True).text.strip()
    if _PACKET_FORM.fullmatch(text):
        return text
    return _BEGIN.encode() + _PACKET_OR_XML_LINE.sub(b"", text) + f"\n{_END}".encode()


def check_writable(mark: Mark) -> None:
    """Check that XML can contain a tag.

    Raises DataError if the tag, or a parent, has a control character or an unpaired surrogate.
    """
    for tag in (mark.tag, *mark.path):
        if match := _NOT_IN_XML.search(tag):
            raise DataError(f"The tag {tag!r} has U+{ord(match[0]):04X}, which XMP cannot hold. Rename the tag.")


def _fields(texts: Mapping[str, list[str]]) -> dict[str, tuple[set[str], set[str]]]:
    """Return field -> (tags of its entries, these tags and their parents), all `folded`, for `OWN_FIELDS`."""
    subjects = {folded(text): text for text in texts[SUBJECT]}
    fields = {}
    for name in OWN_FIELDS.values():
        entries = {folded(tag_of(text, name, subjects)) for text in texts[name]}
        parts = {folded(part) for text in texts[name] if FIELDS[name] for part in parts_in(text, name)}
        fields[name] = entries, entries | parts
    return fields


def _prefixes(mark: Mark, programs: Collection[str], *, iptc: bool) -> str:
    """Return the fields for a tag, without dc:subject if a program's own tag there is the same (in `programs`)."""
    prefixes = [*(OWN_FIELDS if mark.fields is None else mark.fields.split()), *([IPTC] if iptc else [])]
    return " ".join(name for name in prefixes if OWN_FIELDS.get(name) != SUBJECT or tag_key(mark.tag) not in programs)


def _copies(
    keywords: Keywords, requested: dict[str, Mark], fields: dict[str, tuple[set[str], set[str]]], iptc_keys: set[str]
) -> list[Mark]:
    """Return notes on other programs' tags to copy into the fields (and IPTC) that lack them.

    A tag with several paths gets a note for each path. A tag that is only a parent is not copied to fields of paths.
    """
    own_keys = {tag_key(mark.tag) for mark in keywords.marks}
    paths_to: dict[str, list[tuple[str, ...]]] = {}
    for path in keywords.paths:
        paths_to.setdefault(folded(path[-1]), []).append(path)
    parents = {folded(part) for path in keywords.paths for part in path[:-1]}
    leaf_names = fields[HIERARCHICAL][0] | fields[TAGS_LIST][0]
    notes = []

    for tag in keywords.tags:
        key, name = tag_key(tag), folded(tag)
        if key in own_keys:
            continue
        old_copies = [mark for mark in keywords.copies if tag_key(mark.tag) == key]
        copies = [*old_copies]
        if not old_copies:
            missing_prefixes = [prefix for prefix, field in OWN_FIELDS.items() if name not in fields[field][1]]
            if name in parents - leaf_names:
                missing_prefixes = [prefix for prefix in missing_prefixes if OWN_FIELDS[prefix] == SUBJECT]
            paths = paths_to.get(name) or [requested[key].path if key in requested else ()]
            path_fields = [prefix for prefix in missing_prefixes if OWN_FIELDS[prefix] != SUBJECT]
            copies = [
                Mark(tag, COPIED, path=path, fields=" ".join(path_fields if number else missing_prefixes))
                for number, path in enumerate(paths)
            ]
        if key in iptc_keys and not any(mark.is_in_iptc for mark in copies):
            copies[0] = copies[0]._replace(fields=f"{copies[0].fields} {IPTC}".strip())
        notes += [mark for mark in copies if mark.fields] if copies != old_copies else []
    return notes


def _put_back_edit(document: Document, note: TakenOff, label: str) -> Edit:
    """Return the edit that adds an entry again which was removed; IPTC has none in XMP."""
    bags = [bag for element in properties(document, note.field) if (bag := container(element)) is not None]
    entries = [item for element in properties(document, note.field) for item in items(element)]
    if not bags:
        tags = {note.field: [Mark(note.tag, "")]} if note.field in OWN_FIELDS.values() else {}
        return next(iter(_insertions(document, tags, label)), Edit(0, 0, ""))
    if not entries:
        return _append_edit(document, bags[0], note.text)
    position = min(note.position, len(entries))
    at = entries[position - 1].end if position else bags[0].content_start
    return Edit(at, at, note.text)


def _insertions(document: Document, marks: Mapping[str, Sequence[Mark | TakenOff]], label: str) -> list[Edit]:
    """Return the edits that insert tags, or notes, into the existing lists, or else into a new description."""
    edits, new_properties = [], {}
    for name, new_marks in marks.items():
        elements = properties(document, name)
        is_attribute = any(name in node.attributes for node in descriptions(document))
        if is_attribute or any(container(node) is None and (node.children or node.text.strip()) for node in elements):
            raise DataError(
                f"In {label}, {' '.join(_NAMES[name][1:])} is a text; expected a list (rdf:Bag). Save the keywords "
                "again with the program that wrote them."
            )
        if not elements:
            new_properties[name] = new_marks
            continue
        element, bag = elements[0], container(elements[0])
        entries = [_entry(mark, name, bag or element) for mark in new_marks]
        if bag is None:
            rdf, declaration = _prefix(element, "rdf", RDF)
            bag_text = f"<{rdf}{_LIST_TYPE[name]}{declaration}>{''.join(entries)}</{rdf}{_LIST_TYPE[name]}>"
            edits.append(_append_edit(document, element, bag_text))
        elif not items(element):
            edits.append(_append_edit(document, bag, "".join(entries)))
        else:
            final_item = items(element)[-1]
            space = document.text[document.space_start(final_item.start) : final_item.start].decode()
            edits.append(Edit(final_item.end, final_item.end, "".join(space + entry for entry in entries)))

    if new_properties:
        edits.append(_new_description(document, new_properties, label))
    return edits


def _new_description(document: Document, marks: Mapping[str, Sequence[Mark | TakenOff]], label: str) -> Edit:
    rdf_node = next((node for node in document.root.walk() if node.name == qname(RDF, "RDF")), None)
    if rdf_node is None and document.root.name != qname(XMP_META, "xmpmeta"):
        raise DataError(f"{label} is not XMP: it has no rdf:RDF. It is left as it is; move it away, or choose another.")
    parent = rdf_node or document.root
    rdf, declaration = _prefix(parent, "rdf", RDF)
    about = next((node.attributes.get(ABOUT, "") for node in descriptions(document)), "")
    spaces = "".join(f"\n    xmlns:{prefix}={quoteattr(uri)}" for prefix, uri, _ in (_NAMES[name] for name in marks))
    description = Element(
        "", {}, parent.prefixes | {"rdf": RDF} | {_NAMES[name][0]: _NAMES[name][1] for name in marks}, 0, 0, 0, 0, None
    )
    lines = [f"\n  <{rdf}Description {rdf}about={quoteattr(about)}{declaration}{spaces}>"]

    for name, new_marks in marks.items():
        prefix, _, local = _NAMES[name]
        lines += [f"\n   <{prefix}:{local}>", f"\n    <{rdf}{_LIST_TYPE[name]}>"]
        lines += [f"\n     {_entry(mark, name, description)}" for mark in new_marks]
        lines += [f"\n    </{rdf}{_LIST_TYPE[name]}>", f"\n   </{prefix}:{local}>"]

    text = "".join([*lines, f"\n  </{rdf}Description>"])
    if rdf_node is None:
        text = f'\n <rdf:RDF xmlns:rdf="{RDF}">{text}\n </rdf:RDF>'
    return _append_edit(document, parent, text)


def _append_edit(document: Document, element: Element, text: str) -> Edit:
    """Return the edit that appends a text to the content of an element, before the final white space."""
    if element.content_start == element.end:  # written as <a/>
        name = document.text[element.start + 1 : element.end].split(maxsplit=1)[0].rstrip(b"/>").decode()
        return Edit(element.end - len("/>"), element.end, f">{text}</{name}>")
    end = element.children[-1].end if element.children else element.content_start
    return Edit(end, end, text)


def _entry(mark: Mark | TakenOff, name: str, context: Element) -> str:
    rdf, declaration = _prefix(context, "rdf", RDF)
    if name != WRITTEN and isinstance(mark, Mark):
        return f"<{rdf}li{declaration}>{escape(path_in(mark, name))}</{rdf}li>"
    visterm, visterm_declaration = _prefix(context, "visterm", VISTERM)
    values = mark._asdict()
    if isinstance(mark, Mark):
        values |= {"path": mark.path_text, "confidence": None if mark.confidence is None else f"{mark.confidence:.4f}"}
    texts = {name: escape(str(text), {"\r": "&#13;"}) for name, text in values.items() if text is not None}
    fields = "".join(f"<{visterm}{name}>{text}</{visterm}{name}>" for name, text in texts.items())
    return f'<{rdf}li{declaration}{visterm_declaration} {rdf}parseType="Resource">{fields}</{rdf}li>'


def _prefix(context: Element, preferred: str, namespace: str) -> tuple[str, str]:
    """Return the prefix of a namespace with a colon, and the declaration if the prefix is new (else "")."""
    existing = next((prefix for prefix, uri in context.prefixes.items() if prefix and uri == namespace), None)
    return (f"{existing}:", "") if existing else (f"{preferred}:", f" xmlns:{preferred}={quoteattr(namespace)}")


def _without_tags(
    document: Document, keys: Collection[str], *, only_notes: bool = False, copies: Collection[Mark] = ()
) -> bytes:
    """Remove the entries of tags and `copies`, and the elements left empty by that."""
    separators = {} if only_notes else FIELDS
    copied_entries = {(name, folded(mark.tag)) for mark in copies for name in mark.properties()}
    all_keys = {*keys, *(tag_key(mark.tag) for mark in copies)}
    folded_keys, subjects = set(map(folded, keys)), {folded(text): text for text in texts_of(document)[SUBJECT]}
    keywords = keywords_of(document)
    programs = keywords.programs - {
        tag_key(mark.tag) for mark in (*keywords.marks, *keywords.copies) if SUBJECT in mark.properties()
    }

    def is_removed(name: str, item: Element) -> bool:
        if name == WRITTEN:
            mark = mark_of(item)
            return mark is not None and tag_key(mark.tag) in all_keys
        if name not in separators:
            return False
        text = value(item)
        key = folded(tag_of(text, name, subjects))
        if name == SUBJECT and tag_key(text) in programs:
            return False
        return (tag_key(text) in keys if name == SUBJECT else key in folded_keys) or (name, key) in copied_entries

    return _without_entries(document, is_removed)


def _without_entries(document: Document, is_removed: Callable[[str, Element], bool]) -> bytes:
    """Remove entries of properties, and the elements left empty by that; `is_removed` has the name of the property."""
    ids: set[int] = set()
    edits = []
    for node in list(descriptions(document)):
        for element in node.children:
            entries = [item for item in items(element) if is_removed(element.name, item)]
            ids |= {id(item) for item in entries}
            if entries and _drop_empty(document, container(element), ids) and _drop_empty(document, element, ids):
                ids.add(id(element))
                entries = [element]
            edits += [_deletion(document, item) for item in entries]
        is_bare = set(node.attributes) <= {ABOUT}
        if is_bare and any(id(child) in ids for child in node.children) and _drop_empty(document, node, ids):
            edits = [edit for edit in edits if not node.start <= edit.start < node.end]
            edits.append(_deletion(document, node))
    return document.edited(edits)


def _drop_empty(document: Document, element: Element | None, ids: set[int]) -> bool:
    """Add an element to the removed `ids` if nothing is left inside it, not even a comment; return whether it was."""
    if element is None or any(id(child) not in ids for child in element.children):
        return False
    offsets = [element.content_start, *(edge for child in element.children for edge in (child.start, child.end))]
    ends = [*offsets[1:], element.content_end]
    is_empty = not any(document.text[a:b].strip() for a, b in list(zip(offsets, ends, strict=True))[::2])
    if is_empty:
        ids.add(id(element))
    return is_empty


def _deletion(document: Document, element: Element) -> Edit:
    """Return the edit that removes an element, with the white space before it."""
    return Edit(document.space_start(element.start), element.end, "")
