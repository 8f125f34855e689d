"""What every training run shares: settings, devices, data order, checkpoints, the loop, results."""
