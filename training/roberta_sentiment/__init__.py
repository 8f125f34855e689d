"""Fine-tunes a pre-trained encoder, RoBERTa or a relative, to read the mood of a tweet."""
