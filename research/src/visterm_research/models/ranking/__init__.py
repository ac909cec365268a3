"""Rankers that WSABIE and VSE-ens are compared with."""
