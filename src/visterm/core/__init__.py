"""The base of all other packages: errors, types, checks, the registry, the vocabulary and safe files."""
