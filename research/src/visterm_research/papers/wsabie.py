"""What the WSABIE paper reports, typed in once: Weston, Bengio, Usunier, Machine Learning 81, 2010, pages 21 to 35."""

from __future__ import annotations

PAPER = (
    "J. Weston, S. Bengio, N. Usunier: Large scale image annotation: learning to rank with joint word-image "
    "embeddings. Machine Learning 81, 2010"
)

DATA = ("ImageNet", "Web-data")

TABLE_1 = {
    "training images": (2_518_604, 9_861_293),
    "test images": (839_310, 3_286_450),
    "validation images": (837_612, 3_287_280),
    "tags": (15_952, 109_444),
    "median siblings a tag": (12, 143),
}
"""Table 1, section 6.1: ImageNet, Web-data."""

TABLE_2 = {
    "Approx. k-NN": {
        "ImageNet": {"p@1": 0.0155, "p@10": 0.0041, "psib@10": 0.0169, "map": 0.0232},
        "Web-data": {"p@1": 0.0030, "p@10": 0.0034, "psib@10": 0.0597, "map": 0.0152},
    },
    "One-vs-Rest": {
        "ImageNet": {"p@1": 0.0227, "p@10": 0.0102, "psib@10": 0.0371, "map": 0.0517},
        "Web-data": {"p@1": 0.0052, "p@10": 0.0029, "psib@10": 0.0461, "map": 0.0145},
    },
    "PAMIR-IA": {
        "ImageNet": {"p@1": 0.0314, "p@10": 0.0126, "psib@10": 0.0439, "map": 0.0643},
        "Web-data": {"p@1": 0.0032, "p@10": 0.0016, "psib@10": 0.0294, "map": 0.0083},
    },
    "WSABIE": {
        "ImageNet": {"p@1": 0.0403, "p@10": 0.0148, "psib@10": 0.0518, "map": 0.0775},
        "Web-data": {"p@1": 0.0103, "p@10": 0.0044, "psib@10": 0.0984, "map": 0.0227},
    },
}
"""Table 2, section 6.4."""

EXACT_NEIGHBOURS = {"ImageNet": 0.045, "Web-data": 0.003}
"""p@1 of exact nearest neighbours: section 6.4, "Approximate nearest neighbor and nearest neighbor"."""

TABLE_3 = {
    "barack obama": "barak obama, obama, barack, barrack obama, bow wow, george bush",
    "david beckham": "beckham, david beckam, alessandro del piero, del piero, david becham",
    "santa": "santa claus, papa noel, pere noel, santa clause, joyeux noel, tome",
    "dolphin": "delphin, dauphin, whale, delfin, delfini, baleine, blue whale, walvis",
    "rose": "rosen, hibiscus, rose flower, rosa, roze, pink rose, red rose, a rose",
    "mount fuji": "mt fuji, fuji, fujisan, fujiyama, mountain, zugspitze, fuji mountain",
    "ipod": "i pod, ipod nano, apple ipod, ipod apple, new ipod, ipod shuffle",
}
"""Table 3, section 6.4: some of its rows."""

TABLE_4 = {
    100: {"p@1": 0.0348, "p@10": 0.0139, "psib@10": 0.0519, "map": 0.0712},
    200: {"p@1": 0.0391, "p@10": 0.0147, "psib@10": 0.0523, "map": 0.0766},
    300: {"p@1": 0.0403, "p@10": 0.0148, "psib@10": 0.0519, "map": 0.0775},
    500: {"p@1": 0.0395, "p@10": 0.0144, "psib@10": 0.0507, "map": 0.0758},
}
"""Table 4, section 6.4: size of the embedding, on ImageNet."""

TABLE_5 = {
    "embedding, AUC": {
        "ImageNet": {"p@1": 0.0165, "p@10": 0.0091},
        "Web-data": {"p@1": 0.0019, "p@10": 0.0013},
    },
    "WSABIE": {"ImageNet": {"p@1": 0.0403, "p@10": 0.0148}, "Web-data": {"p@1": 0.0103, "p@10": 0.0044}},
    "PAMIR-IA": {"ImageNet": {"p@1": 0.0314, "p@10": 0.0126}, "Web-data": {"p@1": 0.0032, "p@10": 0.0016}},
    "linear, WARP": {"ImageNet": {"p@1": 0.0425, "p@10": 0.0148}, "Web-data": {"p@1": 0.0094, "p@10": 0.0039}},
}
"""Table 5, section 6.4; its linear model with AUC is PAMIR-IA."""

TABLE_6 = {
    "k-NN": {"ImageNet": ("255 d", "6.9 GB"), "Web-data": ("3913 d", "27 GB")},
    "Approx. k-NN": {"ImageNet": ("variable", "7 GB"), "Web-data": ("variable", "27 GB")},
    "One-vs-Rest": {"ImageNet": ("17 h", "1.2 GB"), "Web-data": ("19 d", "8.2 GB")},
    "PAMIR-IA": {"ImageNet": ("17 h", "1.2 GB"), "Web-data": ("19 d", "8.2 GB")},
    "WSABIE": {"ImageNet": ("5.6 h", "12 MB"), "Web-data": ("6.5 d", "82 MB")},
}
"""Table 6, section 6.4: time for the whole test set, and space."""

SECONDS_AN_IMAGE = {
    "k-NN": {"ImageNet": 26.0, "Web-data": 103.0},
    "PAMIR-IA": {"ImageNet": 0.07, "Web-data": 0.5},
    "WSABIE": {"ImageNet": 0.02, "Web-data": 0.17},
}
"""Section 6.4, "Computational expense"."""

TABLE_7 = {
    (300,): {"p@1": 0.0403, "p@10": 0.0148, "psib@10": 0.0518, "map": 0.0775},
    (100, 200): {"p@1": 0.0574, "p@10": 0.0197, "psib@10": 0.0629, "map": 0.1017},
    (100, 300): {"p@1": 0.0538, "p@10": 0.0199, "psib@10": 0.0627, "map": 0.1036},
    (100, 200, 300): {"p@1": 0.0614, "p@10": 0.0209, "psib@10": 0.0642, "map": 0.1123},
}
"""Table 7, section 6.4: sizes of the embeddings that are combined, on ImageNet."""

TABLE_8 = "dolphin: delfini, orca, dolphin, mar, delfin, dauphin, whale, cancan, killer whale, sea world"
"""Table 8, section 6.4: WSABIE's annotations of its first image."""

LEAVES = {2_500: 0.0089, 20_000: 0.0155, 40_000: 0.0194}
"""p@1 on ImageNet by points in a leaf, section 6.4: "Approximate nearest neighbor and nearest neighbor"."""

LOST_NEIGHBOUR = {
    "first": {1.0: 0.045, 0.5: 0.034, 0.25: 0.028},
    "any": {1.0: 0.045, 0.25: 0.020, 0.10: 0.014},
}
"""p@1 on ImageNet if only the first neighbour, or any, is found with some chance; the same paragraph."""

FIGURE_2 = "after 36 hours WARP and AUC are well trained, but AUC does not perform as well, and OWPC-SGD hardly learned"
"""Figure 2 and section 6.4, "WARP loss"; the paper prints no numbers."""
