"""Training, packaging and publishing: what runs on the cluster, and unchanged on a laptop."""
