"""Relevance models and aspects: tags by the chances of an image's visterms."""
