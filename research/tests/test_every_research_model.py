"""Every promise of a model, kept by the models of this package: the contract suite of visterm, run on them."""

from contracts.test_every_model import *  # noqa: F403

RESEARCH = True
