"""The Numba loops: numbers in, numbers out. Imports only numpy and numba."""
