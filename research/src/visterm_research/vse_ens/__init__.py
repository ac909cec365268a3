"""The VSE-ens paper: samplers of negatives (Guo, Zhai, Yuan, Liu, Wang, AAAI 2018)."""
