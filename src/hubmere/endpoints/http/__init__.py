"""HTTPS: publishing, the two management planes, the WebSocket door, health, metrics and their description."""
