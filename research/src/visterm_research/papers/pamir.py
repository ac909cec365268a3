"""What the PAMIR paper reports, typed in once: Grangier, Bengio, PAMI 30, 2008, section V."""

from __future__ import annotations

PAPER = (
    "D. Grangier, S. Bengio: A discriminative kernel-based model to rank images from text queries. IEEE PAMI 30(8), "
    "2008, section V"
)

SMALL, LARGE = "CorelSmall", "CorelLarge"

METHODS = ("CMRM", "CMTT", "PLSA", "SVM", "PAMIR")
"""The columns of Tables VII to XIII."""

MEASURES = ("AvgP", "BEP", "P10")

STATISTICS = {
    SMALL: {
        "pictures": ("4,000", "500", "500"),
        "picture size": ("384x256 or 256x384",) * 3,
        "queries": ("7,221", "1,962", "2,241"),
        "relevant pictures a query": ("5.33", "2.44", "2.37"),
        "words of the vocabulary": ("179",) * 3,
        "words a query": ("2.78", "2.51", "2.51"),
    },
    LARGE: {
        "pictures": ("14,861", "10,259", "10,259"),
        "picture size": ("384x256 or 256x384",) * 3,
        "queries": ("55,442", "39,690", "39,613"),
        "relevant pictures a query": ("3.79", "3.51", "3.52"),
        "words of the vocabulary": ("1,892",) * 3,
        "words a query": ("2.75", "2.72", "2.72"),
    },
}
"""Tables I and II: of training, validation and test pictures."""

TABLE_3 = {
    32: (345, 0.261),
    48: (135, 0.253),
    64: (77, 0.273),
    96: (28, 0.253),
    128: (15, 0.223),
    192: (3, 0.178),
    256: (2, 0.183),
}
"""By the side of a block in pixels: blocks a picture, and AvgP over the validation queries."""

TABLE_4 = {
    "expected likelihood": (0.231, "1 Gaussian a picture"),
    "match": (0.256, "the local RBF kernel's standard deviation 5"),
    "visterm-linear": (0.273, "codebook of 10,000"),
}
"""Kernels: AvgP over the validation queries, and what was chosen."""

TABLE_5 = {SMALL: ("0.1", "2,530,000"), LARGE: ("0.1", "15,500,000")}
"""PAMIR's aggressiveness and number of steps."""

TABLE_6 = {
    SMALL: {
        "CMRM": "block 192, codebook 3,000, alpha 0.5, beta 0.1",
        "CMTT": "block 256, codebook 2,000, 50 singular values",
        "PLSA": "block 32, codebook 50,000, 400 aspects",
        "SVM": "block 48, visterm kernel, codebook 20,000, C for each word",
        "PAMIR": "block 64, visterm kernel, codebook 10,000, c 0.1",
    },
    LARGE: {
        "CMRM": "block 192, codebook 3,000, alpha 0.2, beta 0.1",
        "CMTT": "block 256, codebook 2,000, 1,000 singular values",
        "PLSA": "block 32, codebook 50,000, 600 aspects",
        "SVM": "block 48, visterm kernel, codebook 20,000, C for each word",
        "PAMIR": "block 64, visterm kernel, codebook 10,000, c 0.1",
    },
}
"""Blocks in pixels of pictures twice as large as ours; PAMIR's are from Tables III to V."""

TABLE_7 = {
    SMALL: dict(zip(METHODS, (3, 9, 240, 687, 17), strict=True)),
    LARGE: dict(zip(METHODS, (849, 4099, 1025, 24650, 450), strict=True)),
}
"""Seconds of indexing on an AMD Athlon64 of 2.4 GHz."""

TABLE_8 = {SMALL: 0.34, LARGE: 7.94}
"""Milliseconds a query, the same for all models."""


def _shares(*percents: float) -> dict[str, float]:
    return dict(zip(METHODS, (percent / 100 for percent in percents), strict=True))


TABLE_9 = {
    "AvgP": _shares(19.2, 19.8, 20.7, 22.0, 26.3),
    "BEP": _shares(13.1, 13.7, 12.8, 13.8, 17.4),
    "P10": _shares(7.8, 7.6, 8.7, 9.3, 10.0),
}
TABLE_10 = {"easy": _shares(34.0, 31.3, 38.0, 41.9, 43.3), "difficult": _shares(15.8, 17.2, 16.7, 17.3, 22.4)}
TABLE_11 = {"one word": _shares(25.8, 26.4, 31.7, 32.7, 34.0), "several words": _shares(18.6, 19.3, 19.7, 21.0, 25.7)}
TABLE_12 = {
    "AvgP": _shares(12.7, 12.9, 11.1, 10.1, 16.1),
    "BEP": _shares(7.1, 6.3, 4.1, 3.1, 7.7),
    "P10": _shares(2.5, 2.7, 2.9, 2.5, 3.5),
}
TABLE_13 = {
    "AvgP": _shares(2.11, 2.23, 2.61, 3.60, 3.65),
    "BEP": _shares(1.26, 1.46, 1.69, 1.81, 1.90),
    "P10": _shares(1.44, 1.49, 1.79, 2.26, 2.53),
}

KIND_COUNTS = {"all": 2241, "easy": 421, "difficult": 1820, "one word": 179, "several words": 2062, "test only": 601}
"""Test queries of CorelSmall."""

FIGURE_4 = ("petals", "building car")
FIGURE_5 = ("tree snow people", "zebra herd")

FIVE_TAGS = {
    "JEC": (0.27, 0.32, 139),
    "TagProp (sigma ML)": (0.33, 0.42, 160),
    "FastTag": (0.32, 0.43, 166),
    "2PKNN (ML)": (0.44, 0.46, 191),
    "CCA-KNN": (0.42, 0.52, 201),
    "NSIDML": (0.44, 0.52, 194),
}
"""Published on Corel5k's usual split, with five tags an image: mean precision and recall a word, and N+."""
