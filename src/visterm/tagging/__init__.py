"""The tagger: what an encoder, a model and a vocabulary do together, from fitting to explaining."""
