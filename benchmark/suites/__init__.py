"""What is to be run: cells, suites of them, and what a user chooses among them."""
