"""Networks into the words' space that sampled tagging is compared with."""
