"""What the objects-and-parts paper reports, typed in once: Mesnil et al., Machine Learning 94, 2014."""

from __future__ import annotations

PAPER = (
    "G. Mesnil, A. Bordes, J. Weston, G. Chechik, Y. Bengio: Learning semantic representations of objects and their "
    "parts. Machine Learning 94, 2014 (its annotation part, section 6.1)"
)

PARTS_PAPER = PAPER.replace("its annotation part, section 6.1", "objects and parts, sections 6.2 to 6.6")

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

SHARED_IW, UNSHARED_IW, SHARED_I, UNSHARED_I = "Shared (IW)", "UnShared (IW)", "Shared (I)", "UnShared (I)"
SVM = "SVM"
SHARED_IO, UNSHARED_IO = "Shared (IO)", "UnShared (IO)"

ANNOTATION, LABELLING, TRIPLET = "Image annotation", "Part-object labelling", "Triplet"

N_TAGS = 1000
N_RELATIONS = 771
"""Of ImageNet and WordNet (section 4.3.2)."""

TABLE_3 = {
    SHARED_IW: {LABELLING: (0.1148, 0.0340, 0.1892), TRIPLET: (0.2631, 0.0990, 0.5545)},
    UNSHARED_IW: {LABELLING: (0.1001, 0.0302, 0.1669), TRIPLET: (0.3313, 0.0962, 0.5595)},
    SHARED_I: {
        ANNOTATION: (0.1121, 0.0385, 0.2021),
        LABELLING: (0.0513, 0.0184, 0.0955),
        TRIPLET: (0.1121, 0.0385, 0.2021),
    },
    UNSHARED_I: {
        ANNOTATION: (0.1294, 0.0410, 0.2219),
        LABELLING: (0.0608, 0.0211, 0.1118),
        TRIPLET: (0.1294, 0.0410, 0.2219),
    },
    SVM: {ANNOTATION: (0.1002, 0.0372, 0.1864), TRIPLET: (0.1002, 0.0372, 0.1864)},
}
"""ImageNet-WordNet, test quadruplets: p@1, p@10, MAP by task. A p@10 is at most 10 %."""

TABLE_4 = {
    SHARED_IW: {LABELLING: (0.0025, 0.0013, 0.0075), TRIPLET: (0.0910, 0.0443, 0.2044)},
    UNSHARED_IW: {LABELLING: (0.0, 0.0010, 0.0043), TRIPLET: (0.1820, 0.0479, 0.2778)},
    SHARED_I: {
        ANNOTATION: (0.1085, 0.0292, 0.1728),
        LABELLING: (0.0, 0.0008, 0.0039),
        TRIPLET: (0.1085, 0.0292, 0.1728),
    },
    UNSHARED_I: {
        ANNOTATION: (0.0726, 0.0237, 0.1288),
        LABELLING: (0.0, 0.0003, 0.0025),
        TRIPLET: (0.0726, 0.0237, 0.1288),
    },
}
"""LHI: 489 pairs of an object and a part of that very object, 19 relations of which 10 were not learned from."""

TABLE_5 = {
    SHARED_IW: (0.0306, 0.0245, 0.1005),
    UNSHARED_IW: (0.0204, 0.0164, 0.0670),
    SHARED_IO: (0.0143, 0.0117, 0.0483),
    UNSHARED_IO: (0.0123, 0.0145, 0.0519),
}
"""LHI, with 781 candidate relations: p@1, p@10, MAP."""

KNOWN_RELATIONS = 781

TABLE_6 = {
    "toe": (
        ("footwear", "tongue", "stringed instrument", "shoe"),
        ("shoe", "accelerator pedal", "storage", "boot"),
    ),
    "radio-phonograph": (
        ("dresser", "rotor head", "firebox", "rear light"),
        ("tuner", "amplifier", "public address system", "loudspeaker"),
    ),
    "loudspeaker": (
        ("lens", "sustaining pedal", "public address system", "optical instrument"),
        ("public address system", "amplifier", "tuner", "radio-phonograph"),
    ),
}
"""Nearest labels of a label: shared, unshared."""
