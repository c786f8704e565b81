"""What it costs: rounds measured beside each other."""
