"""What nodes run at boot and while they live: data, one archive in the boot bucket."""
