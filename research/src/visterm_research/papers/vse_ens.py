"""What the VSE-ens paper reports, typed in once: Guo, Zhai, Yuan, Liu, Wang, AAAI 2018."""

from __future__ import annotations

PAPER = (
    "G. Guo, S. Zhai, F. Yuan, Y. Liu, X. Wang: VSE-ens: Visual-semantic embeddings with efficient negative "
    "sampling. AAAI 2018"
)

DATA = ("OpenImages", "NUS-WIDE", "IAPR-TC12")

TABLE_1 = {
    "images": (112_247, 269_648, 19_627),
    "tags": (6_000, 5_108, 291),
    "training pairs": (887_752, 2_018_879, 79_527),
    "test pairs": (112_247, 267_642, 20_000),
}
"""Table 1: OpenImages, NUS-WIDE, IAPR-TC12."""

_METRICS = ("p@5", "r@5", "p@10", "r@10", "map", "auc")


def _row(*values: float) -> dict[str, float]:
    return dict(zip(_METRICS, values, strict=True))


TABLE_2 = {
    "VSE-ens": {
        "OpenImages": _row(0.0574, 0.2869, 0.0434, 0.4342, 0.1762, 0.7168),
        "NUS-WIDE": _row(0.0278, 0.1391, 0.0198, 0.1982, 0.0893, 0.5990),
        "IAPR-TC12": _row(0.0598, 0.2990, 0.0436, 0.4364, 0.1836, 0.7126),
    },
    "WARP": {
        "OpenImages": _row(0.0526, 0.2628, 0.0390, 0.3900, 0.1676, 0.6948),
        "NUS-WIDE": _row(0.0107, 0.0533, 0.0083, 0.0830, 0.0336, 0.5415),
        "IAPR-TC12": _row(0.0595, 0.2976, 0.0428, 0.4278, 0.1796, 0.7086),
    },
    "Opt-AUC": {
        "OpenImages": _row(0.0188, 0.0938, 0.0147, 0.1465, 0.0564, 0.5732),
        "NUS-WIDE": _row(0.0035, 0.0177, 0.0028, 0.0279, 0.0113, 0.5139),
        "IAPR-TC12": _row(0.0543, 0.2713, 0.0414, 0.4136, 0.1629, 0.7011),
    },
}
"""Table 2."""

TABLE_3 = {"VSE-ens": "O(2k)", "WARP": "O(Tk)", "Opt-AUC": "O(k)"}
"""Table 3: k is the size of the embedding, T the mean number of draws for a negative."""

TABLE_4 = {
    "VSE-ens": {"OpenImages": 7.1, "NUS-WIDE": 24.83, "IAPR-TC12": 0.95},
    "WARP": {"OpenImages": 35.65, "NUS-WIDE": 51.46, "IAPR-TC12": 2.38},
    "Opt-AUC": {"OpenImages": 10.13, "NUS-WIDE": 25.06, "IAPR-TC12": 1.82},
}
"""Table 4: hours of training."""

FIGURE_1 = {"OpenImages": (2_100, 13), "NUS-WIDE": (900, 15), "IAPR-TC12": (1_600, None)}
"""Figure 1: draws at which WARP levels off, as "Experimentation on the Efficiency Issue" says, and the iteration from
which on (for IAPR-TC12 it says "the beginning stage")."""
