"""BERT pre-training: plain text to shards, and shards to a model in the transformers layout."""
