"""What a symmetry is."""
