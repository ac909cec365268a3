"""The namespaces of XMP, and the fields in which programs keep keywords."""

from __future__ import annotations

from typing import NamedTuple

from visterm.data.xmp.tree import qname

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
XMP_META = "adobe:ns:meta/"
DC = "http://purl.org/dc/elements/1.1/"
LIGHTROOM = "http://ns.adobe.com/lightroom/1.0/"
VISTERM = "urn:visterm:xmp:1.0/"
"""Of what visterm notes of the tags that it wrote."""

DESCRIPTION = qname(RDF, "Description")
ABOUT = qname(RDF, "about")
ITEM = qname(RDF, "li")
VALUE = qname(RDF, "value")
CONTAINERS = tuple(qname(RDF, kind) for kind in ("Bag", "Seq", "Alt"))

SUBJECT = qname(DC, "subject")
HIERARCHICAL = qname(LIGHTROOM, "hierarchicalSubject")
WRITTEN = qname(VISTERM, "written")


class Field(NamedTuple):
    """A property that holds a list of keywords, and what parts parents from children in them."""

    name: str
    separator: str | None


FIELDS = (
    Field(SUBJECT, None),
    Field(HIERARCHICAL, "|"),
    Field(qname("http://www.digikam.org/ns/1.0/", "TagsList"), "/"),
    Field(qname("http://ns.microsoft.com/photo/1.0", "LastKeywordXMP"), "/"),
    Field(qname("http://ns.microsoft.com/photo/1.0/", "LastKeywordXMP"), "/"),
    Field(qname("http://ns.iview-multimedia.com/mediapro/1.0/", "CatalogSets"), "|"),
)

BOOKKEEPING = ("_Digikam_Internal_Tags_", "darktable")
"""Roots under which programs keep notes of their own."""
