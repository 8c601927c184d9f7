"""Networks that learn which symmetries they should have."""
