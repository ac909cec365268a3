"""What the objects-and-parts paper reports of annotation, typed in once: Mesnil et al., Machine Learning 94, 2014."""

from __future__ import annotations

PAPER = (
    "G. Mesnil, A. Bordes, J. Weston, G. Chechik, Y. Bengio: Learning semantic representations of objects and their "
    "parts. Machine Learning 94, 2014 (its annotation part, section 6.1)"
)

DATA = "ImageNet"

VISTERMS = "bag of visterms"
ENSEMBLE = "ensemble+KPCA"

FEATURES = {
    VISTERMS: ("10,000", "245"),
    ENSEMBLE: ("1,024, of about 500,000", "–"),
}
"""Sections 4.3.3 and 6.1: numbers an image, and how many of them are not zero."""

TABLE_1 = {
    ("Approx. k-NN", VISTERMS): {"p@1": 0.0155},
    ("k-NN", VISTERMS): {"p@1": 0.0450},
    ("One-vs-Rest", VISTERMS): {"p@1": 0.0227, "p@10": 0.0102},
    ("linear, AUC", VISTERMS): {"p@1": 0.0314, "p@10": 0.0126},
    ("WSABIE [d=500]", VISTERMS): {"p@1": 0.0614, "p@10": 0.0209},
    ("k-NN", ENSEMBLE): {"p@1": 0.0773},
    ("WSABIE [d=1000]", ENSEMBLE): {"p@1": 0.1003, "p@10": 0.0302},
}
"""Table 1: method and features."""

SIZES = {VISTERMS: 500, ENSEMBLE: 1000}
"""Of WSABIE's embedding, in Table 1."""

TABLE_2 = {
    "embedding": {"embedding, AUC": 0.0165, "WSABIE": 0.0403},
    "linear": {"linear, AUC": 0.0314, "linear, WARP": 0.0425},
}
"""Table 2: p@1 by loss on the bag of visterms, AUC first; the embedding has 100 dimensions."""

WHATEVER_THE_METHOD = "section 6.1: ensemble+KPCA outperforms visterms independent of the learning algorithm"
"""What the paper says of all methods, and has figures of two for."""

SIZE_REMARK = (
    "In the WSABIE paper (2010), 6.14 % and 2.09 % are what three embeddings of 100, 200 and 300 dimensions reach "
    "together (its Table 7), and one of 500 has 3.95 % (its Table 4)."
)
"""On the row "WSABIE [d=500]" of Table 1."""
