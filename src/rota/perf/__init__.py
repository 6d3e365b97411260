"""What a job gains from what it holds: speed, contention, price."""
