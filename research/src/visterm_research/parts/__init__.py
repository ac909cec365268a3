"""The objects-and-parts paper, Tables 3 to 6: objects and their parts (Mesnil et al., Machine Learning 94, 2014)."""
