"""The objects-and-parts paper, Tables 1 and 2: visterms against an ensemble of histograms with kernel PCA."""
