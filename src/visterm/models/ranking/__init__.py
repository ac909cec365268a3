"""Models that learn to rank by drawn pairs: WSABIE, VSE-ens and the systems that they compare against."""
