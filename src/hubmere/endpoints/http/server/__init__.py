"""HTTP/1.1 and WebSocket on uvicorn: connections, limits, and which handler answers which path."""
