"""What every layer above speaks: errors, types, checks, the registry, the vocabulary and safe files."""
