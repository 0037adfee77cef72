"""HTTP concerns around the app: pure ASGI middleware and small request helpers, one concept per module."""
