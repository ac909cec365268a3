"""The PAMIR paper: search by several words (Grangier, Bengio, PAMI 30, 2008)."""
