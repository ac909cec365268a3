"""The WSABIE paper: losses and rankers (Weston, Bengio, Usunier, Machine Learning 81, 2010)."""
