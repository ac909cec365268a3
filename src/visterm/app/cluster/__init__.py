"""Jobs on several machines, by Ray: the same work as on one, given out by the shard."""
