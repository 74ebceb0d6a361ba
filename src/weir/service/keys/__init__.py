"""API keys: their roles, scopes and storage."""
