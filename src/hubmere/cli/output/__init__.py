"""How commands print results: formats, tables and colours."""
