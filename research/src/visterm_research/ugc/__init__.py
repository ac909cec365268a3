"""The sampled tagging paper: tags as people write them (Ni et al.)."""
