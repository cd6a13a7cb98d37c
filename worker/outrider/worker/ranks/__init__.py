"""Ranks that share one model: what they tell each other, who leads, who follows."""
