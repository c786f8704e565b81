"""Recommendation of a method for a user's own data: properties, leaderboard tasks like it, a small equal tuning."""
