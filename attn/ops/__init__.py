"""Pure functions on arrays; `attn` exports all that is public."""
