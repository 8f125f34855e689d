"""What the `ultracluster` command does. Nothing that runs in AWS imports from here."""
