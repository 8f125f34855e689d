"""Training on a Slurm cluster: submitted, watched, and started again until it is done."""
