"""The HTTP endpoint: publishing, ARM and Atom management, AMQP over WebSocket, health, metrics, OpenAPI."""
