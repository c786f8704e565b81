"""What must hold: the checks that every method and dataset is held to."""
