"""Which method for a user's own data: its properties, what the leaderboard says of such data, a small equal tuning."""
