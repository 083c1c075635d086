"""Protocol engines without I/O: bytes to signals, commands to bytes."""
